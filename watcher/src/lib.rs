//! One dedicated thread waits on any number of handles for any number of clients.
//!
//! This is the engine. Programs depend on `handle-watcher-client`, which re-exports what they need.
//!
//! ```text
//! control request → rows and kernel set → poll → ready scan → event port → client
//!        └─ timers → command queue ────────↑
//! ```
//!
//! # Tracing
//!
//! Through `tracing`, under the targets `handle_watcher::watcher` and `handle_watcher::port` (errors and warnings; the
//! life of the thread at `info`, rebuilt fronts at `debug`), `handle_watcher::control` and `handle_watcher::turn` (each
//! new watch and each stale report, at `trace`). Nothing is said for each event. The table is in ARCHITECTURE.md.

// A loom build has the state word and the wake flags alone, without most of those who use them.
#![cfg_attr(loom, allow(dead_code))]

#[cfg(not(loom))]
mod arrivals;
#[cfg(not(loom))]
mod back;
#[cfg(not(loom))]
mod child_process;
#[cfg(not(loom))]
mod command;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod control;
#[cfg(not(loom))]
mod deadline;
#[cfg(not(loom))]
mod events;
#[cfg(not(loom))]
mod file_changes;
#[cfg(not(loom))]
mod front;
#[cfg(not(loom))]
mod front_pass;
#[cfg(not(loom))]
mod handle_table;
#[cfg(not(loom))]
mod heat;
#[cfg(not(loom))]
mod kernel_flags;
#[cfg(not(loom))]
mod link;
#[cfg(not(loom))]
mod list;
#[cfg(not(loom))]
mod nodes;
#[cfg(not(loom))]
mod notified_port;
#[cfg(not(loom))]
mod notify;
mod outcome;
#[cfg(not(loom))]
mod port;
#[cfg(not(loom))]
mod port_queue;
#[cfg(not(loom))]
mod refusal;
#[cfg(not(loom))]
mod registration;
#[cfg(not(loom))]
mod remote;
#[cfg(not(loom))]
mod rows;
#[cfg(not(loom))]
mod scan;
#[cfg(not(loom))]
mod service;
#[cfg(not(loom))]
mod shared;
mod state;
#[cfg(not(loom))]
mod stats;
mod sync;
#[cfg(not(loom))]
mod sys;
#[cfg(not(loom))]
mod timers;
#[cfg(not(loom))]
mod turn;
#[cfg(not(loom))]
mod wait_many;
#[cfg(not(loom))]
mod wait_set;
#[cfg(not(loom))]
mod waiting_data;
mod wake;
#[cfg(not(loom))]
mod watched;
#[cfg(not(loom))]
mod watcher;

#[cfg(not(loom))]
pub use crate::{
    child_process::ChildProcess,
    config::{ClientConfig, Config},
    control::{Control, WatchOptions},
    deadline::Deadline,
    events::Events,
    file_changes::{Change, Changes, FileChanges},
    front::FrontPolicy,
    handle_table::Refused,
    link::ConnectConfig,
    notified_port::{Drained, NotifiedPort},
    notify::Notify,
    port::Port,
    remote::connect,
    service::{Service, ServiceConfig},
    stats::{ClientStats, HISTOGRAM_CLASSES, Histogram, Stats},
    wait_many::{WaitEntry, wait_many},
    watched::Watched,
    watcher::Watcher,
};
pub use handle_watcher_wire::{
    Code, Event, EventKind, HandleId, Mode, Result, Signals, SignalsState, Status, TimerId, Token, WatchId,
};

/// What `tests/loom` models: the state word and the two wake flags, built over loom's atomics.
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
