//! What a client asks of the service.

use crate::pickle::{HeaderSize, ReadError, Reader, Writer};
use crate::{Code, Mode, Signals, Status, Token};

/// The numbers of the kinds, frozen.
mod kind {
    pub(super) const HELLO: u32 = 1;
    pub(super) const WATCH: u32 = 2;
    pub(super) const CHANGE: u32 = 3;
    pub(super) const ARM: u32 = 4;
    pub(super) const PAUSE: u32 = 5;
    pub(super) const UNWATCH: u32 = 6;
    pub(super) const CLOSE: u32 = 7;
    pub(super) const SET_TIMER: u32 = 8;
    pub(super) const CANCEL_TIMER: u32 = 9;
    pub(super) const PING: u32 = 10;
    pub(super) const ECHO: u32 = 11;
    pub(super) const STATS: u32 = 12;
    pub(super) const SESSIONS: u32 = 13;
    pub(super) const WATCHES: u32 = 14;
    pub(super) const KILL: u32 = 15;
    pub(super) const BYE: u32 = 16;
}

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The number of the kind.
    pub kind: u32,
    /// The client's number of this call, which the reply repeats. [`NO_CALL`](super::NO_CALL) wants no reply.
    pub call: u32,
    /// How many of the descriptors that travel with the bytes of this frame are its own.
    pub descriptors: u32,
}

/// The first request of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The lowest version that the client speaks.
    pub version_lowest: u32,
    /// The highest version that the client speaks.
    pub version_highest: u32,
    /// What the client calls itself, for logs and lists; may be empty.
    pub name: &'a str,
}

/// Makes a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Watch {
    /// The client's number of the watch.
    pub id: u64,
    /// The client's number of the handle. With a descriptor it is new; without, one that was passed before.
    pub handle: u64,
    /// Comes back in every event.
    pub token: Token,
    /// What is waited for; nothing makes a paused watch.
    pub signals: Signals,
    /// Once or Edge.
    pub mode: Mode,
    /// Nanoseconds of CLOCK_MONOTONIC; 0 for none.
    pub deadline_ns: u64,
}

/// Replaces what a watch waits for, arms it, and takes back what it has undelivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The watch.
    pub id: u64,
    /// Comes back in every event from now on.
    pub token: Token,
    /// What is waited for; nothing pauses it.
    pub signals: Signals,
    /// Once or Edge.
    pub mode: Mode,
}

/// Arms a watch again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arm {
    /// The watch.
    pub id: u64,
    /// Comes back in every event from now on.
    pub token: Token,
    /// Nanoseconds of CLOCK_MONOTONIC; 0 for none.
    pub deadline_ns: u64,
}

/// Sets a timer, or sets one anew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetTimer {
    /// The client's number of the timer.
    pub id: u64,
    /// Comes back in every event.
    pub token: Token,
    /// Nanoseconds of CLOCK_MONOTONIC.
    pub deadline_ns: u64,
    /// Nanoseconds; 0 for a timer that fires once.
    pub period_ns: u64,
}

/// One request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// The first frame; the reply is a [`Welcome`](super::Welcome).
    Hello(Hello<'a>),
    /// See [`Watch`].
    Watch(Watch),
    /// See [`Change`].
    Change(Change),
    /// See [`Arm`].
    Arm(Arm),
    /// Silences a watch until it is changed.
    Pause {
        /// The watch.
        id: u64,
    },
    /// Ends a watch. The last watch of a handle closes it, before the reply.
    Unwatch {
        /// The watch.
        id: u64,
    },
    /// Ends every watch of a handle with `CANCELLED` and closes it, before the reply.
    Close {
        /// The handle.
        handle: u64,
    },
    /// See [`SetTimer`].
    SetTimer(SetTimer),
    /// Cancels a timer: after the reply no event of it comes.
    CancelTimer {
        /// The timer.
        id: u64,
    },
    /// Asks for nothing but a reply.
    Ping,
    /// Asks for the same bytes back.
    Echo(&'a [u8]),
    /// Asks for what the service counts, and what this session has.
    Stats,
    /// Asks for the list of sessions.
    Sessions,
    /// Asks for a session's busiest watches.
    Watches {
        /// The session's number; 0 for the caller's own.
        session: u64,
        /// At most so many.
        most: u32,
    },
    /// Ends another session.
    Kill {
        /// The session's number.
        session: u64,
    },
    /// Ends this session in order: the service replies and closes.
    Bye,
}

/// Why a frame is not a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestError {
    /// The frame cannot be read: where the next one begins is known, but not what this one meant. Ends the session.
    Malformed(Status),
    /// The frame is whole and asks for something that does not exist or cannot be. Gets a reply.
    Refused(Head, Status),
}

impl Request<'_> {
    /// Writes the frame into a writer, which is cleared first. `descriptors` of those that travel with it are its own.
    pub fn write(&self, call: u32, descriptors: u32, writer: &mut Writer) {
        writer.clear();
        writer.write_u32(self.kind());
        writer.write_u32(call);
        writer.write_u32(descriptors);
        match *self {
            Self::Hello(hello) => {
                writer.write_str(super::MAGIC);
                writer.write_u32(hello.version_lowest);
                writer.write_u32(hello.version_highest);
                writer.write_str(hello.name);
            }
            Self::Watch(watch) => {
                writer.write_u64(watch.id);
                writer.write_u64(watch.handle);
                writer.write_u64(watch.token);
                writer.write_u32(watch.signals.bits().into());
                writer.write_u32(mode_number(watch.mode));
                writer.write_u64(watch.deadline_ns);
            }
            Self::Change(change) => {
                writer.write_u64(change.id);
                writer.write_u64(change.token);
                writer.write_u32(change.signals.bits().into());
                writer.write_u32(mode_number(change.mode));
            }
            Self::Arm(arm) => {
                writer.write_u64(arm.id);
                writer.write_u64(arm.token);
                writer.write_u64(arm.deadline_ns);
            }
            Self::SetTimer(timer) => {
                writer.write_u64(timer.id);
                writer.write_u64(timer.token);
                writer.write_u64(timer.deadline_ns);
                writer.write_u64(timer.period_ns);
            }
            Self::Pause { id } | Self::Unwatch { id } | Self::CancelTimer { id } => writer.write_u64(id),
            Self::Close { handle } => writer.write_u64(handle),
            Self::Echo(bytes) => writer.write_data(bytes),
            Self::Watches { session, most } => {
                writer.write_u64(session);
                writer.write_u32(most);
            }
            Self::Kill { session } => writer.write_u64(session),
            Self::Ping | Self::Stats | Self::Sessions | Self::Bye => {}
        }
    }

    fn kind(&self) -> u32 {
        match self {
            Self::Hello(_) => kind::HELLO,
            Self::Watch(_) => kind::WATCH,
            Self::Change(_) => kind::CHANGE,
            Self::Arm(_) => kind::ARM,
            Self::Pause { .. } => kind::PAUSE,
            Self::Unwatch { .. } => kind::UNWATCH,
            Self::Close { .. } => kind::CLOSE,
            Self::SetTimer(_) => kind::SET_TIMER,
            Self::CancelTimer { .. } => kind::CANCEL_TIMER,
            Self::Ping => kind::PING,
            Self::Echo(_) => kind::ECHO,
            Self::Stats => kind::STATS,
            Self::Sessions => kind::SESSIONS,
            Self::Watches { .. } => kind::WATCHES,
            Self::Kill { .. } => kind::KILL,
            Self::Bye => kind::BYE,
        }
    }
}

impl<'a> Request<'a> {
    /// Reads a whole frame. Values behind those that this version knows are passed over.
    ///
    /// # Errors
    /// [`RequestError::Malformed`] with `INVALID_ARGUMENT` if the frame is too short for its kind or a string in it is
    /// not UTF-8;
    /// [`RequestError::Refused`] with `UNIMPLEMENTED` for a kind that this version does not know, and with
    /// `INVALID_ARGUMENT` for a value that means nothing.
    pub fn read(frame: &'a [u8]) -> Result<(Head, Self), RequestError> {
        let mut reader =
            Reader::with_header_size(HeaderSize::PLAIN, frame).map_err(RequestError::Malformed)?;
        let head = read_head(&mut reader).map_err(malformed)?;
        let refused = |status| RequestError::Refused(head, status);
        let request = match head.kind {
            kind::HELLO => Self::Hello(read_hello(&mut reader)?),
            kind::WATCH => Self::Watch(read_watch(&mut reader).map_err(malformed)?.map_err(refused)?),
            kind::CHANGE => Self::Change(read_change(&mut reader).map_err(malformed)?.map_err(refused)?),
            kind::ARM => Self::Arm(read_arm(&mut reader).map_err(malformed)?),
            kind::SET_TIMER => Self::SetTimer(read_timer(&mut reader).map_err(malformed)?),
            kind::PAUSE => Self::Pause { id: reader.read_u64().map_err(malformed)? },
            kind::UNWATCH => Self::Unwatch { id: reader.read_u64().map_err(malformed)? },
            kind::CANCEL_TIMER => Self::CancelTimer { id: reader.read_u64().map_err(malformed)? },
            kind::CLOSE => Self::Close { handle: reader.read_u64().map_err(malformed)? },
            kind::ECHO => Self::Echo(reader.read_data().map_err(malformed)?),
            kind::WATCHES => Self::Watches {
                session: reader.read_u64().map_err(malformed)?,
                most: reader.read_u32().map_err(malformed)?,
            },
            kind::KILL => Self::Kill { session: reader.read_u64().map_err(malformed)? },
            kind::PING => Self::Ping,
            kind::STATS => Self::Stats,
            kind::SESSIONS => Self::Sessions,
            kind::BYE => Self::Bye,
            unknown => {
                return Err(refused(Status::new(
                    Code::Unimplemented,
                    format!(
                        "requests of kind {unknown} do not exist in version {}; see PROTOCOL.md",
                        super::VERSION_HIGHEST
                    ),
                )));
            }
        };
        Ok((head, request))
    }
}

/// Whatever was wrong with one of its values, it is the frame that is not valid.
fn malformed(error: ReadError) -> RequestError {
    RequestError::Malformed(Status::new(Code::InvalidArgument, error.to_string()))
}

fn read_head(reader: &mut Reader<'_>) -> Result<Head, ReadError> {
    Ok(Head { kind: reader.read_u32()?, call: reader.read_u32()?, descriptors: reader.read_u32()? })
}

fn read_hello<'a>(reader: &mut Reader<'a>) -> Result<Hello<'a>, RequestError> {
    let magic = reader.read_data().map_err(malformed)?;
    if magic != super::MAGIC.as_bytes() {
        return Err(RequestError::Malformed(Status::new(
            Code::InvalidArgument,
            "the first frame does not say that it is for Handle Watcher; is this the socket you meant?",
        )));
    }
    Ok(Hello {
        version_lowest: reader.read_u32().map_err(malformed)?,
        version_highest: reader.read_u32().map_err(malformed)?,
        name: reader.read_str().map_err(malformed)?,
    })
}

fn read_watch(reader: &mut Reader<'_>) -> Result<Result<Watch, Status>, ReadError> {
    let (id, handle, token) = (reader.read_u64()?, reader.read_u64()?, reader.read_u64()?);
    let (signals, mode, deadline_ns) = (reader.read_u32()?, reader.read_u32()?, reader.read_u64()?);
    Ok(to_wish(signals, mode).map(|(signals, mode)| Watch { id, handle, token, signals, mode, deadline_ns }))
}

fn read_change(reader: &mut Reader<'_>) -> Result<Result<Change, Status>, ReadError> {
    let (id, token) = (reader.read_u64()?, reader.read_u64()?);
    let (signals, mode) = (reader.read_u32()?, reader.read_u32()?);
    Ok(to_wish(signals, mode).map(|(signals, mode)| Change { id, token, signals, mode }))
}

fn read_arm(reader: &mut Reader<'_>) -> Result<Arm, ReadError> {
    Ok(Arm { id: reader.read_u64()?, token: reader.read_u64()?, deadline_ns: reader.read_u64()? })
}

fn read_timer(reader: &mut Reader<'_>) -> Result<SetTimer, ReadError> {
    Ok(SetTimer {
        id: reader.read_u64()?,
        token: reader.read_u64()?,
        deadline_ns: reader.read_u64()?,
        period_ns: reader.read_u64()?,
    })
}

/// Level has no number: it belongs to the client, who alone knows when it comes back for more.
pub(super) fn mode_number(mode: Mode) -> u32 {
    match mode {
        Mode::Once => 0,
        Mode::Edge | Mode::Level => 1,
    }
}

pub(super) fn to_mode(number: u32) -> Result<Mode, Status> {
    match number {
        0 => Ok(Mode::Once),
        1 => Ok(Mode::Edge),
        _ => Err(Status::new(
            Code::InvalidArgument,
            format!("there is no mode {number} on the wire; use 0 for Once or 1 for Edge"),
        )),
    }
}

pub(super) fn to_known_signals(bits: u32) -> Result<Signals, Status> {
    u8::try_from(bits).ok().and_then(Signals::from_bits).ok_or_else(|| {
        Status::new(
            Code::InvalidArgument,
            format!("the signals {bits:#x} have unknown bits; use READABLE 1, WRITABLE 2, PEER_CLOSED 4, PRIORITY 8 and ERROR 16"),
        )
    })
}

fn to_wish(signals: u32, mode: u32) -> Result<(Signals, Mode), Status> {
    Ok((to_known_signals(signals)?, to_mode(mode)?))
}
