//! What the service tells unasked.

use super::request::to_known_signals;
use crate::pickle::{HeaderSize, Reader, Writer};
use crate::{Code, EventKind, Result, Signals, Status, Token};

/// The number of the kind, frozen.
const EVENT: u32 = 128;

/// One event of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventFrame {
    /// What happened.
    pub kind: EventKind,
    /// The client's number of the watch, or of the timer.
    pub id: u64,
    /// The token that came with the last request about it.
    pub token: Token,
    /// For Ready and Deadline: what holds.
    pub satisfied: Signals,
    /// What holds or can still come to hold.
    pub satisfiable: Signals,
    /// For Timer: how many periods it stands for.
    pub count: u32,
    /// For Ended: why.
    pub status: Code,
}

impl EventFrame {
    /// Writes the frame into a writer, which is cleared first.
    pub fn write(&self, writer: &mut Writer) {
        writer.clear();
        writer.write_u32(EVENT);
        writer.write_u32(kind_number(self.kind));
        writer.write_u64(self.id);
        writer.write_u64(self.token);
        writer.write_u32(self.satisfied.bits().into());
        writer.write_u32(self.satisfiable.bits().into());
        writer.write_u32(self.count);
        writer.write_str(self.status.to_ascii());
    }

    /// Reads a whole frame.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is no event, or has a kind or signals that do not exist; `OUT_OF_RANGE` if it is too short.
    #[inline]
    pub fn read(frame: &[u8]) -> Result<Self> {
        let mut reader = Reader::with_header_size(HeaderSize::PLAIN, frame)?;
        let (frame_kind, kind) = (reader.read_u32()?, reader.read_u32()?);
        if frame_kind != EVENT {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "a frame of kind {frame_kind} came where an event, {EVENT}, was expected; is the other side the service?"
                ),
            ));
        }
        let (id, token) = (reader.read_u64()?, reader.read_u64()?);
        let satisfied = to_known_signals(reader.read_u32()?)?;
        let satisfiable = to_known_signals(reader.read_u32()?)?;
        let (count, digits) = (reader.read_u32()?, reader.read_data()?);
        let status = Code::from_ascii(digits).unwrap_or(Code::Unknown);
        Ok(Self { kind: to_kind(kind)?, id, token, satisfied, satisfiable, count, status })
    }
}

fn kind_number(kind: EventKind) -> u32 {
    match kind {
        EventKind::Ready => 1,
        EventKind::Unsatisfiable => 2,
        EventKind::Deadline => 3,
        EventKind::Timer => 4,
        EventKind::Wake => 5,
        EventKind::Reply => 6,
        EventKind::Ended => 7,
    }
}

fn to_kind(number: u32) -> Result<EventKind> {
    Ok(match number {
        1 => EventKind::Ready,
        2 => EventKind::Unsatisfiable,
        3 => EventKind::Deadline,
        4 => EventKind::Timer,
        5 => EventKind::Wake,
        6 => EventKind::Reply,
        7 => EventKind::Ended,
        _ => {
            return Err(Status::new(
                Code::InvalidArgument,
                format!("there is no event kind {number}; see PROTOCOL.md for the seven there are"),
            ));
        }
    })
}
