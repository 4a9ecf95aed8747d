//! What parent and child say to each other: one JSON object a line, over the child's stdin and stdout.

use crate::Result;
use crate::subject::{Recorder, Slice, nanoseconds};
use crate::sys::allocator::{self, Allocations};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parent to child: run one slice. The end of the stream means: finish.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Request {
    pub(crate) slice_ns: u64,
}

/// Child to parent: the slice that was asked for, or why there is none.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) enum Reply {
    Slice(Measured),
    Failed(String),
}

/// One slice with what the process consumed during it.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Measured {
    /// A histogram in its own V2 format, in hexadecimal digits so that it fits a line.
    samples: String,
    pub(crate) operations: u64,
    pub(crate) elapsed_ns: u64,
    pub(crate) cpu_ns: u64,
    pub(crate) context_switches: u64,
    pub(crate) counters: BTreeMap<String, u64>,
    pub(crate) gauges: BTreeMap<String, f64>,
}

impl Measured {
    /// Packs what a subject returned.
    pub(crate) fn new(mut slice: Slice, recorder: &Recorder) -> Result<Self> {
        let mut bytes = Vec::new();
        V2Serializer::new()
            .serialize(recorder.histogram(), &mut bytes)
            .map_err(|error| format!("a histogram does not serialize: {error}"))?;
        // A slice without operations has none to share allocations over: `memory` counts bytes only.
        if allocator::is_counting() && slice.operations > 0 {
            let Allocations { by_clients, by_others, .. } = slice.allocations;
            slice.counters.insert("allocations".to_owned(), by_clients + by_others);
            slice.counters.insert("client_allocations".to_owned(), by_clients);
            slice.counters.insert("other_allocations".to_owned(), by_others);
        }
        Ok(Self {
            samples: to_hex(&bytes),
            operations: slice.operations,
            elapsed_ns: nanoseconds(slice.elapsed),
            cpu_ns: nanoseconds(slice.used.cpu),
            context_switches: slice.used.context_switches,
            counters: slice.counters,
            gauges: slice.gauges,
        })
    }

    /// The samples of the slice.
    pub(crate) fn samples(&self) -> Result<Histogram<u64>> {
        let bytes = from_hex(&self.samples)?;
        Deserializer::new()
            .deserialize(&mut bytes.as_slice())
            .map_err(|error| format!("a child's histogram is damaged: {error}").into())
    }
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(digits: &str) -> Result<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|value| u8::try_from(value).ok());
    digits
        .as_bytes()
        .chunks(2)
        .map(|pair| match pair {
            &[high, low] => digit(high).zip(digit(low)).map(|(high, low)| high << 4 | low),
            _ => None,
        })
        .collect::<Option<Vec<u8>>>()
        .ok_or_else(|| "a child's histogram is not hexadecimal".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn samples_survive_the_pipe() {
        let mut recorder = Recorder::new();
        (1..1000).for_each(|micros| recorder.record(Duration::from_micros(micros)));
        let measured = Measured::new(Slice::default(), &recorder).expect("serializes");
        assert_eq!(&measured.samples().expect("deserializes"), recorder.histogram());
    }

    #[test]
    fn damaged_samples_are_refused() {
        assert!(from_hex("0").is_err());
        assert!(from_hex("zz").is_err());
        assert_eq!(from_hex("00fF").expect("legal"), [0x00, 0xff]);
    }
}
