//! `hwctl`: looks into a Handle Watcher service, and waits in shells.

mod arguments;
mod connection;
mod exit;
mod output;
mod span;
mod text;
mod top;
mod verbs;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Verb};

fn main() -> ExitCode {
    let result = match Arguments::parse().verb {
        Verb::Ping(service) => verbs::ping(&service.socket()).map(|()| exit::READY),
        Verb::Stats(list) => verbs::stats(&list.service.socket(), list.json).map(|()| exit::READY),
        Verb::Sessions(list) => verbs::sessions(&list.service.socket(), list.json).map(|()| exit::READY),
        Verb::Kill { service, session } => verbs::kill(&service.socket(), session).map(|()| exit::READY),
        Verb::Top { service, interval } => {
            top::run(&service.socket(), interval.duration()).map(|()| exit::READY)
        }
        Verb::Wait(wait) => wait::run(wait),
    };
    match result {
        Ok(code) => ExitCode::from(code),
        Err(status) => {
            output::complain(&format!("hwctl: {status}"));
            ExitCode::from(exit::of(&status))
        }
    }
}
