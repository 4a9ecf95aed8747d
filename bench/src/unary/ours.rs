//! Handle Watcher: Echo, asked by a blocking client.

use super::PAYLOAD;
use crate::Result;
use crate::calls::Calls;
use crate::host::{Host, WithHost};
use crate::pin::Placement;
use crate::subject::{Recorder, Slice, Stretch, Subject};
use std::time::{Duration, Instant};

/// A session of a service in a process of its own.
pub(crate) fn open(placement: &Placement) -> Result<Box<dyn Subject>> {
    let (host, address) = Host::service(placement)?;
    Ok(Box::new(WithHost { subject: Echo { calls: Calls::open(&address)? }, host }))
}

struct Echo {
    calls: Calls,
}

impl Subject for Echo {
    fn run(&mut self, length: Duration, recorder: &mut Recorder) -> Result<Slice> {
        let stretch = Stretch::begin()?;
        let (mut asked, mut count) = (stretch.began(), 0);
        while asked - stretch.began() < length {
            let came = self.calls.echo(&PAYLOAD)?;
            if came != PAYLOAD.len() {
                return Err(format!("{came} bytes came back").into());
            }
            let answered = Instant::now();
            recorder.record(answered - asked);
            asked = answered;
            count += 1;
        }
        stretch.end(count)
    }
}
