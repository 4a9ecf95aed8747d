//! Flags and their environment.

use std::time::Duration;

use clap::{Parser, ValueEnum};
use handle_watcher::{Code, Result, ServiceConfig, Status};

/// Serves a handle watcher on a Unix socket: clients pass descriptors, and are told when they are ready.
///
/// It stops in order on SIGTERM and SIGINT. A service manager's socket, readiness and watchdog are used where there are any.
/// Exit status: 0 after a stop in order, 1 if something was wrong, 2 if the flags were.
#[derive(Debug, Parser)]
#[command(name = "handle-watcherd", version)]
pub(super) struct Options {
    /// Where clients connect; `@name` is an abstract name [default: handle-watcher.sock in $XDG_RUNTIME_DIR, or in /run for
    /// root]
    #[arg(long, value_name = "PATH", env = "HANDLE_WATCHER_SOCKET")]
    socket: Option<String>,

    /// Permissions of the socket's file, in octal
    #[arg(long, value_name = "OCTAL", env = "HANDLE_WATCHER_MODE", default_value = "600", value_parser = parse_mode)]
    mode: u32,

    /// A user who may connect, beside root and the service's own; may be given again
    #[arg(long, value_name = "UID", env = "HANDLE_WATCHER_ALLOW_UID", value_delimiter = ',')]
    allow_uid: Vec<u32>,

    /// A group whose members may connect; may be given again
    #[arg(long, value_name = "GID", env = "HANDLE_WATCHER_ALLOW_GID", value_delimiter = ',')]
    allow_gid: Vec<u32>,

    /// Connections that may wait to be accepted
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_BACKLOG", default_value_t = defaults().backlog)]
    backlog: i32,

    /// How long a new connection has for its Hello, in milliseconds
    #[arg(long, value_name = "MS", env = "HANDLE_WATCHER_HELLO_TIMEOUT_MS", default_value_t = 5000)]
    hello_timeout_ms: u64,

    /// The longest frame, in bytes
    #[arg(long, value_name = "BYTES", env = "HANDLE_WATCHER_FRAME_BYTES", default_value_t = defaults().frame_bytes)]
    frame_bytes: u32,

    /// Unread replies after which a session is not read any more, in bytes
    #[arg(long, value_name = "BYTES", env = "HANDLE_WATCHER_REPLY_BYTES", default_value_t = defaults().reply_bytes)]
    reply_bytes: u32,

    /// Sessions altogether
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_SESSION_LIMIT", default_value_t = defaults().session_limit)]
    session_limit: u32,

    /// Sessions of one user
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_SESSIONS_PER_USER", default_value_t = defaults().sessions_per_user)]
    sessions_per_user: u32,

    /// Watches of one session
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_WATCHES_PER_SESSION", default_value_t = defaults().watches_per_session)]
    watches_per_session: u32,

    /// Watches of one user
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_WATCHES_PER_USER", default_value_t = defaults().watches_per_user)]
    watches_per_user: u32,

    /// Timers of one session
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_TIMERS_PER_SESSION", default_value_t = defaults().timers_per_session)]
    timers_per_session: u32,

    /// Timers of one user
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_TIMERS_PER_USER", default_value_t = defaults().timers_per_user)]
    timers_per_user: u32,

    /// Descriptors of one session that nothing took yet
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_DESCRIPTORS_PER_SESSION", default_value_t = defaults().descriptors_per_session)]
    descriptors_per_session: u32,

    /// Descriptors of one user that nothing took yet
    #[arg(long, value_name = "COUNT", env = "HANDLE_WATCHER_DESCRIPTORS_PER_USER", default_value_t = defaults().descriptors_per_user)]
    descriptors_per_user: u32,

    /// What is logged: a level, or a filter such as `warn,handle_watcher::service=debug`
    #[arg(long, value_name = "FILTER", env = "HANDLE_WATCHER_LOG", default_value = "info")]
    pub(super) log: String,

    /// How it is logged, to standard error
    #[arg(long, value_name = "FORMAT", env = "HANDLE_WATCHER_LOG_FORMAT", default_value = "text")]
    pub(super) log_format: LogFormat,
}

/// How a line of the log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// An object a line.
    Json,
}

impl Options {
    /// The socket's path.
    pub(super) fn socket(&self) -> Result<String> {
        if let Some(path) = &self.socket {
            return Ok(path.clone());
        }
        let folder = match std::env::var("XDG_RUNTIME_DIR") {
            Ok(folder) if !folder.is_empty() => folder,
            _ if rustix::process::geteuid().is_root() => "/run".to_owned(),
            _ => {
                return Err(Status::new(
                    Code::FailedPrecondition,
                    "XDG_RUNTIME_DIR is not set, so there is no usual place for the socket; give one with --socket",
                ));
            }
        };
        Ok(format!("{folder}/handle-watcher.sock"))
    }

    /// The service's set-up.
    pub(super) fn config(&self) -> ServiceConfig {
        ServiceConfig {
            mode: self.mode,
            allow_uids: self.allow_uid.clone(),
            allow_gids: self.allow_gid.clone(),
            backlog: self.backlog,
            hello_timeout: Duration::from_millis(self.hello_timeout_ms),
            frame_bytes: self.frame_bytes,
            reply_bytes: self.reply_bytes,
            session_limit: self.session_limit,
            sessions_per_user: self.sessions_per_user,
            watches_per_session: self.watches_per_session,
            watches_per_user: self.watches_per_user,
            timers_per_session: self.timers_per_session,
            timers_per_user: self.timers_per_user,
            descriptors_per_session: self.descriptors_per_session,
            descriptors_per_user: self.descriptors_per_user,
            ..ServiceConfig::default()
        }
    }
}

fn defaults() -> ServiceConfig {
    ServiceConfig::default()
}

fn parse_mode(text: &str) -> std::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permissions are an octal number up to 777, such as 660".to_owned()),
    }
}
