//! What the service answers.

use crate::pickle::{HeaderSize, Reader, Writer};
use crate::status::encode_message;
use crate::{Code, Result, Status};

/// The number of the kind, frozen.
const REPLY: u32 = 64;

/// The limits of one session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest frame either side may send, header included, in bytes.
    pub frame_bytes: u32,
    /// How many watches the session may have.
    pub watches: u32,
    /// How many timers it may have.
    pub timers: u32,
    /// How many descriptors may have been passed that no frame has taken yet.
    pub descriptors: u32,
}

/// What the reply to Hello says; the event socket travels with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// The version that is spoken from here on.
    pub version: u32,
    /// The number of the session, for lists and logs. It opens nothing.
    pub session: u64,
    /// The limits of the session.
    pub limits: Limits,
}

/// A reply that was read. What a good one says beside its status is in [`body`](Self::body).
#[derive(Clone, Debug)]
pub struct Reply<'a> {
    /// The number of the call, or [`NO_CALL`](super::NO_CALL) when the session ends.
    pub call: u32,
    /// How many of the descriptors that travel with it are its own.
    pub descriptors: u32,
    /// How the call ended.
    pub status: Status,
    /// The values behind the status.
    pub body: Reader<'a>,
}

impl<'a> Reply<'a> {
    /// Writes the frame up to its body into a writer, which is cleared first. The caller writes the body behind it.
    pub fn write(call: u32, descriptors: u32, status: &Status, writer: &mut Writer) {
        writer.clear();
        writer.write_u32(REPLY);
        writer.write_u32(call);
        writer.write_u32(descriptors);
        writer.write_str(status.code().to_ascii());
        writer.write_str(&encode_message(status.message()));
    }

    /// Writes the frame of a call that went well, up to its body.
    pub fn write_ok(call: u32, writer: &mut Writer) {
        Self::write(call, 0, &Status::new(Code::Ok, ""), writer);
    }

    /// Reads a whole frame.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if it is no reply; `OUT_OF_RANGE` if it is too short for one.
    pub fn read(frame: &'a [u8]) -> Result<Self> {
        let mut reader = Reader::with_header_size(HeaderSize::PLAIN, frame)?;
        let kind = reader.read_u32()?;
        if kind != REPLY {
            return Err(Status::new(
                Code::InvalidArgument,
                format!(
                    "a frame of kind {kind} came where a reply, {REPLY}, was expected; is the other side the service?"
                ),
            ));
        }
        let (call, descriptors) = (reader.read_u32()?, reader.read_u32()?);
        let (code, message) = (reader.read_data()?, reader.read_data()?);
        let status = if code == b"0" && message.is_empty() {
            Status::new(Code::Ok, "")
        } else {
            Status::from_trailers(code, message)
        };
        Ok(Self { call, descriptors, status, body: reader })
    }
}

impl Welcome {
    /// Writes the body.
    pub fn write(&self, writer: &mut Writer) {
        writer.write_u32(self.version);
        writer.write_u64(self.session);
        writer.write_u32(self.limits.frame_bytes);
        writer.write_u32(self.limits.watches);
        writer.write_u32(self.limits.timers);
        writer.write_u32(self.limits.descriptors);
    }

    /// Reads the body.
    ///
    /// # Errors
    /// `OUT_OF_RANGE` if it is too short.
    pub fn read(body: &mut Reader<'_>) -> Result<Self> {
        Ok(Self {
            version: body.read_u32()?,
            session: body.read_u64()?,
            limits: Limits {
                frame_bytes: body.read_u32()?,
                watches: body.read_u32()?,
                timers: body.read_u32()?,
                descriptors: body.read_u32()?,
            },
        })
    }
}
