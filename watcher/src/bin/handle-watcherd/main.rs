//! The service as a program: flags, logs, signals, and a service manager's wishes around one watcher and one service.

mod manager;
mod options;
mod sys;

use std::process::ExitCode;
use std::time::Duration;

use clap::Parser;
use handle_watcher::{
    ClientConfig, Code, Config, Control, Deadline, Events, Port, Result, Service, ServiceConfig, Status,
    Watcher,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tracing_subscriber::EnvFilter;

use manager::Manager;
use options::{LogFormat, Options};
use sys::StopSignals;

/// Clients of the watcher beside the sessions: the service's own, and the one that shows signs of life.
const OTHER_CLIENTS: u32 = 2;

fn main() -> ExitCode {
    // Before any thread is made and any descriptor is opened.
    let signals = StopSignals::block();
    let listener = manager::take_listener();
    let options = Options::parse();
    match run(&options, signals, listener) {
        Ok(()) => ExitCode::SUCCESS,
        Err(status) => {
            eprintln!("handle-watcherd: {status}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    options: &Options,
    signals: std::io::Result<StopSignals>,
    listener: Result<Option<std::os::fd::OwnedFd>>,
) -> Result<()> {
    start_log(options)?;
    let signals = signals.map_err(|error| {
        Status::new(Code::Internal, format!("the stop signals could not be blocked: {error}"))
    })?;
    raise_descriptor_limit();
    let config = options.config();
    let client_limit = config.session_limit.saturating_add(OTHER_CLIENTS);
    let watcher = Watcher::spawn(Config { client_limit, ..Config::default() })?;
    let service = serve(&watcher, options, config, listener?)?;
    let manager = Manager::from_environment();
    manager.tell("READY=1");
    let signal = wait_for_stop(&watcher, &signals, &manager)?;
    tracing::info!(target: "handle_watcher::daemon", signal, "stopping");
    manager.tell("STOPPING=1");
    service.stop();
    watcher.stop()
}

fn serve(
    watcher: &Watcher,
    options: &Options,
    config: ServiceConfig,
    listener: Option<std::os::fd::OwnedFd>,
) -> Result<Service> {
    match listener {
        Some(listener) => Service::from_listener(watcher, listener, config),
        None => Service::bind(watcher, &options.socket()?, config),
    }
}

/// Waits for a signal that stops the program, and shows the manager signs of life meanwhile, as long as the watcher does.
fn wait_for_stop(watcher: &Watcher, signals: &StopSignals, manager: &Manager) -> Result<i32> {
    let Some(interval) = manager.sign_interval() else {
        loop {
            // Interrupted by another signal, such as those of a debugger.
            if let Some(signal) = signals.wait(None) {
                return Ok(signal);
            }
        }
    };
    let mut pulse = Pulse::of(watcher)?;
    loop {
        if pulse.is_felt(interval) {
            manager.tell("WATCHDOG=1");
        } else {
            tracing::error!(target: "handle_watcher::daemon", "the watcher thread does not turn");
        }
        if let Some(signal) = signals.wait(Some(interval)) {
            return Ok(signal);
        }
    }
}

/// A client that asks the watcher thread for a sign of life.
#[derive(Debug)]
struct Pulse {
    control: Control,
    port: Port,
    events: Events,
}

impl Pulse {
    fn of(watcher: &Watcher) -> Result<Self> {
        let (control, port) = watcher.client(ClientConfig::default())?;
        Ok(Self { control, port, events: Events::with_capacity(4) })
    }

    /// A timer that only the watcher thread can fire comes in time.
    fn is_felt(&mut self, timeout: Duration) -> bool {
        let is_set = self.control.set_timer(Deadline::at_ns(1), 0).is_ok();
        is_set && self.port.wait(&mut self.events, Some(timeout)).is_ok_and(|count| count > 0)
    }
}

fn start_log(options: &Options) -> Result<()> {
    let filter = EnvFilter::try_new(&options.log).map_err(|error| {
        Status::new(
            Code::InvalidArgument,
            format!("the log filter {:?} cannot be read: {error}", options.log),
        )
    })?;
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(false);
    match options.log_format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
    Ok(())
}

/// Each session takes two descriptors and each handle one, so as many as there may be are wanted.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::warn!(target: "handle_watcher::daemon", %error, "the limit of descriptors stays as it is");
    }
}
