//! Wait on many handles without blocking the program that cares about them: the one crate to depend on.
//!
//! A [`Client`] registers descriptors and timers with one dedicated watcher thread and reads what became ready from one
//! port. See the README of the project for when that is the right thing, and CONTRACT.md for what is promised.

mod asynchronous;
mod channel;
mod client;
mod stream;

pub use asynchronous::{AsyncClient, AsyncTimer, AsyncWatch, Ready};
pub use channel::ChannelClient;
pub use client::Client;
pub use handle_watcher::{
    Change, Changes, ChildProcess, ClientConfig, ClientStats, Code, Config, ConnectConfig, Control, Deadline,
    Drained, Event, EventKind, Events, FileChanges, FrontPolicy, HISTOGRAM_CLASSES, HandleId, Histogram,
    Mode, NotifiedPort, Notify, Port, Refused, Result, Service, ServiceConfig, Signals, SignalsState, Stats,
    Status, TimerId, Token, WaitEntry, WatchId, WatchOptions, Watched, Watcher, wait_many,
};
pub use stream::EventStream;

/// The examples of the README, compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
