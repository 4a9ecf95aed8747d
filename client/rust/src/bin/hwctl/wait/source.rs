//! A source as the command line names it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::Duration;

use handle_watcher_client::{Code, Result, Status};

use super::awaited::Awaited;
use super::connect::Connect;
use super::descriptor::Descriptor;
use super::path::PathChange;
use super::process::Process;
use super::resolve::{Target, unix_address};
use super::timer::Timer;
use crate::span::Span;

/// A source: the words of the command line, and what they mean.
#[derive(Clone, Debug)]
pub(crate) struct Source {
    word: OsString,
    kind: Kind,
}

#[derive(Clone, Debug)]
enum Kind {
    Descriptor(i32),
    Process(u32),
    Path(PathBuf),
    Connect(Target),
    Timer(Duration),
}

impl Source {
    /// Reads a source.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the value and what to write instead.
    pub(crate) fn parse(word: OsString) -> Result<Self> {
        let kind = parse_kind(&word)?;
        Ok(Self { word, kind })
    }

    /// The source as it was given; what is not UTF-8 in it is replaced.
    pub(crate) fn name(&self) -> String {
        self.word.to_string_lossy().into_owned()
    }

    /// What has to be looked at before anything is opened.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a descriptor that is not open.
    pub(crate) fn check(&self) -> Result<()> {
        match self.kind {
            Kind::Descriptor(number) => Descriptor::check(number),
            _ => Ok(()),
        }
    }

    /// The source as something to wait for.
    pub(crate) fn awaited(self) -> Box<dyn Awaited> {
        match self.kind {
            Kind::Descriptor(number) => Box::new(Descriptor::new(number)),
            Kind::Process(id) => Box::new(Process::new(id)),
            Kind::Path(path) => Box::new(PathChange::new(path)),
            Kind::Connect(target) => Box::new(Connect::new(target)),
            Kind::Timer(timeout) => Box::new(Timer::new(timeout)),
        }
    }
}

fn parse_kind(word: &OsStr) -> Result<Kind> {
    let bytes = word.as_bytes();
    let colon = bytes.iter().position(|byte| *byte == b':');
    let (kind, rest) = colon.map_or((bytes, &[][..]), |colon| (&bytes[..colon], &bytes[colon + 1..]));
    if colon.is_some() && rest.is_empty() {
        return Err(refused(word, "names nothing behind its colon"));
    }
    let rest = OsStr::from_bytes(rest);
    let text = || rest.to_str().ok_or_else(|| refused(word, "is not UTF-8"));
    match (kind, colon) {
        (b"fd", Some(_)) => match text()?.parse() {
            Ok(number) if number >= 0 => Ok(Kind::Descriptor(number)),
            _ => Err(refused(word, "is no descriptor number; 0 is stdin")),
        },
        (b"pid", Some(_)) => match text()?.parse() {
            Ok(id) if id > 0 && i32::try_from(id).is_ok() => Ok(Kind::Process(id)),
            _ => Err(refused(word, "is no process id")),
        },
        (b"path", Some(_)) => Ok(Kind::Path(PathBuf::from(rest))),
        (b"tcp", Some(_)) => parse_tcp(word, text()?),
        (b"unix", Some(_)) => {
            let address = unix_address(rest).map_err(|why| refused(word, &why))?;
            Ok(Kind::Connect(Target::Address(address)))
        }
        (b"timer", Some(_)) => {
            let span = text()?
                .parse::<Span>()
                .map_err(|error| refused(word, &format!("has a bad time: {error}")))?;
            Ok(Kind::Timer(span.duration()))
        }
        _ => Err(refused(word, "is of no kind that there is")),
    }
}

/// The last colon separates the port, so that an IPv6 address in brackets can have its own.
fn parse_tcp(word: &OsStr, text: &str) -> Result<Kind> {
    let Some((host, port)) = text.rsplit_once(':') else {
        return Err(refused(word, "has no port"));
    };
    let bracketed = host.strip_prefix('[').and_then(|host| host.strip_suffix(']'));
    if host.is_empty() || (bracketed.is_none() && host.contains([':', '[', ']'])) {
        return Err(refused(word, "has no host; an IPv6 address stands in brackets"));
    }
    match port.parse() {
        Ok(port) if port > 0 => {
            Ok(Kind::Connect(Target::Host { host: bracketed.unwrap_or(host).to_owned(), port }))
        }
        _ => Err(refused(word, "has no port from 1 to 65535")),
    }
}

fn refused(word: &OsStr, why: &str) -> Status {
    Status::new(
        Code::InvalidArgument,
        format!(
            "{word:?} {why}. Write fd:NUMBER, pid:NUMBER, path:PATH, tcp:HOST:PORT, unix:PATH or timer:TIME"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_read() {
        let words = [
            "fd:0",
            "pid:1",
            "path:/x",
            "path:a:b",
            "tcp:localhost:80",
            "tcp:[::1]:80",
            "tcp:127.0.0.1:65535",
            "unix:/x",
            "unix:@name",
            "timer:1.5s",
            "timer:0s",
        ];
        for word in words {
            let source = Source::parse(word.into()).expect(word);
            assert_eq!(source.name(), word);
        }
        let odd = OsStr::from_bytes(b"path:/\xff");
        let Kind::Path(path) = Source::parse(odd.into()).expect("any path").kind else { panic!("a path") };
        assert_eq!(path.as_os_str().as_bytes(), b"/\xff");
    }

    #[test]
    fn what_is_no_source_is_refused_by_name() {
        let words = [
            "",
            "x",
            "fd",
            "fd:",
            "fd:-1",
            "fd:x",
            "fd:99999999999",
            "pid:0",
            "pid:-1",
            "pid:4294967295",
            "file:/x",
            "path:",
            "tcp:80",
            "tcp::80",
            "tcp:host:",
            "tcp:host:0",
            "tcp:host:65536",
            "tcp:::1:80",
            "unix:",
            "unix:@",
            "timer:5",
            "timer:",
            "FD:0",
        ];
        for word in words {
            let status = Source::parse(word.into()).expect_err(word);
            assert_eq!(status.code(), Code::InvalidArgument);
            assert!(status.message().contains(&format!("{word:?}")), "{status}");
        }
        let long = format!("unix:/{}", "x".repeat(200));
        assert!(Source::parse(long.clone().into()).expect_err("too long").message().contains(&long));
    }
}
