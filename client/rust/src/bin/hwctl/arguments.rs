//! The command line.

use std::ffi::OsString;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};

use crate::exit;
use crate::span::Span;
use crate::wait::Source;

/// Looks into a Handle Watcher service, and waits in shells.
///
/// `wait` needs no service. The other verbs talk to one over its Unix socket; they wait at most 5 seconds for an answer.
#[derive(Debug, Parser)]
#[command(name = "hwctl", version, after_help = exit::HELP)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    /// Asks the service for a sign of life
    ///
    /// Prints how long the answer took.
    #[command(after_help = exit::HELP)]
    Ping(Service),
    /// Prints what the service counts
    ///
    /// One counter a line. Class 0 of a histogram counts zeroes, class k counts from 2^(k-1) to 2^k - 1, the last one
    /// everything above.
    #[command(after_help = exit::HELP)]
    Stats(List),
    /// Lists the sessions of the service
    #[command(after_help = exit::HELP)]
    Sessions(List),
    /// Ends a session of the service
    ///
    /// Its client is told so. `hwctl sessions` has the numbers.
    #[command(after_help = exit::HELP)]
    Kill {
        #[command(flatten)]
        service: Service,
        /// The number of the session
        #[arg(value_name = "ID")]
        session: u64,
    },
    /// Shows live what the service does
    ///
    /// Sessions and watches, the busiest first; events per second, and how many of them cost no hop (front) and how many
    /// came through the watcher thread (back); how many descriptors each wait of the watcher found ready; how long the
    /// service took to answer this screen. Needs a terminal. q, Esc or Ctrl-C ends it.
    #[command(after_help = exit::HELP)]
    Top {
        #[command(flatten)]
        service: Service,
        /// How often the service is asked
        #[arg(long, value_name = "TIME", default_value = "1s")]
        interval: Span,
    },
    /// Waits until something is ready
    #[command(after_help = exit::HELP, long_about = WAIT)]
    Wait(Wait),
}

const WAIT: &str = "\
Waits until something is ready. No service is needed.

Sources:
  fd:0           the descriptor can be read, or its other end has hung up.
                 Regular files are refused: they are always ready
  pid:123        the process has ended. One that is not there has ended, too
  path:/x        the path exists. If it exists at the start: it has changed,
                 which a removal or a replacement does as well. A folder changes
                 when an entry comes or goes. Links are followed; folders on the
                 way may be missing, come and go. Where the file system may
                 not tell (of a network, /proc, /sys) it is looked at once a
                 second
  tcp:host:port  a connection is accepted. It is closed at once: the server sees
                 it come and go. IPv6 as tcp:[::1]:80. A name is looked up anew
                 for each round of attempts
  unix:path      the same for a Unix socket; unix:@name for an abstract one
  timer:5s       so much time has passed

An attempt to connect is given up after 5s. Between two rounds of attempts it
rests, first 50ms, then twice as long each time, up to 1s.

For each source that comes a line goes to stdout, separated by tabs: the source
as it was given; what came (readable, peer-closed, error for fd, with a comma
between two of them; ended, absent for pid; exists, changed, removed for path;
connected for tcp and unix; expired for timer); after how long. What comes
together is printed together, with --any, too. With --json a line is an object:
  {\"after_ns\":1204500,\"source\":\"pid:123\",\"what\":\"ended\"}

A source that can never come, such as a regular file as fd, ends the wait with
status 1, whatever else could still come.

On a terminal stderr shows what is still waited for, and what is in the way.";

/// The service that is talked to.
#[derive(Args, Debug)]
pub(crate) struct Service {
    /// The socket of the service; @name is an abstract one [default: $XDG_RUNTIME_DIR/handle-watcher.sock, without
    /// XDG_RUNTIME_DIR /run/handle-watcher.sock]
    #[arg(long, env = "HANDLE_WATCHER_SOCKET", value_name = "PATH")]
    socket: Option<OsString>,
}

impl Service {
    /// The socket that was asked for, or the usual one.
    pub(crate) fn socket(&self) -> OsString {
        // An empty variable is a variable that was not set.
        if let Some(socket) = self.socket.as_ref().filter(|socket| !socket.is_empty()) {
            return socket.clone();
        }
        let mut folder = std::env::var_os("XDG_RUNTIME_DIR")
            .filter(|folder| !folder.is_empty())
            .unwrap_or_else(|| OsString::from("/run"));
        folder.push("/handle-watcher.sock");
        folder
    }
}

#[derive(Args, Debug)]
pub(crate) struct List {
    #[command(flatten)]
    pub(crate) service: Service,
    /// Print JSON: for `stats` one object, for `sessions` one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
pub(crate) struct Wait {
    /// One source is enough; this is the default
    #[arg(long, conflicts_with = "all")]
    any: bool,
    /// Every source has to come
    #[arg(long)]
    pub(crate) all: bool,
    /// Give up after so long: 500ms, 30s, 1.5m, 1h
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Span>,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
    /// fd:NUMBER, pid:NUMBER, path:PATH, tcp:HOST:PORT, unix:PATH or timer:TIME
    #[arg(required = true, value_name = "SOURCE", value_parser = OsStringValueParser::new().try_map(Source::parse))]
    pub(crate) sources: Vec<Source>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }
}
