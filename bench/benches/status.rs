//! Micro benches of the status codec: one code or one message, to its bytes and back. Nothing is sent.
//!
//! The texts are those of grpc-java's StatusBenchmark. The rows `tonic` are its public functions. Its codec of messages
//! is not public, so messages are beside the `percent-encoding` crate that it uses, escaping what we escape; `trailers`
//! are the whole of it on both sides, in a header map.

use criterion::{BenchmarkGroup, Criterion, criterion_group, criterion_main, measurement::WallTime};
use handle_watcher_wire::status::{Code, HttpStatus, Status, decode_message, encode_message};
use std::hint::black_box;
use std::time::Duration;

const PLAIN: &str = "Unexpected RST in stream";
const TO_ESCAPE: &str = "Some Error\nWasabi and Horseradish are the same";
const ESCAPED: &str = "Some Error%10Wasabi and Horseradish are the same";

fn codes(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.bench_function("code_decode/ours", |bencher| {
        bencher.iter(|| Code::from_ascii(black_box(b"15")));
    });
    #[cfg(feature = "peers")]
    group.bench_function("code_decode/tonic", |bencher| {
        bencher.iter(|| tonic::Code::from_bytes(black_box(b"15")));
    });
    group.bench_function("code_encode/ours", |bencher| {
        bencher.iter(|| black_box(Code::DataLoss).to_ascii());
    });
    group.bench_function("http_status_parse/ours", |bencher| {
        bencher.iter(|| HttpStatus::parse(black_box(b"503")));
    });
    #[cfg(feature = "peers")]
    group.bench_function("http_status_parse/http", |bencher| {
        bencher.iter(|| http::StatusCode::from_bytes(black_box(b"503")));
    });
}

fn messages(group: &mut BenchmarkGroup<'_, WallTime>) {
    for (name, message) in [("message_encode_plain", PLAIN), ("message_encode_escape", TO_ESCAPE)] {
        group.bench_function(format!("{name}/ours"), |bencher| {
            bencher.iter(|| encode_message(black_box(message)));
        });
        #[cfg(feature = "peers")]
        group.bench_function(format!("{name}/percent-encoding"), |bencher| {
            bencher.iter(|| peers::encode_message(black_box(message)));
        });
    }
    for (name, encoded) in [("message_decode_plain", PLAIN), ("message_decode_escape", ESCAPED)] {
        group.bench_function(format!("{name}/ours"), |bencher| {
            bencher.iter(|| decode_message(black_box(encoded.as_bytes())));
        });
        #[cfg(feature = "peers")]
        group.bench_function(format!("{name}/percent-encoding"), |bencher| {
            bencher.iter(|| peers::decode_message(black_box(encoded.as_bytes())));
        });
    }
}

/// A status from its two trailers, its message a string of its own.
fn statuses(group: &mut BenchmarkGroup<'_, WallTime>) {
    group.bench_function("from_trailers/ours", |bencher| {
        bencher.iter(|| Status::from_trailers(black_box(b"15"), black_box(ESCAPED.as_bytes())));
    });
    #[cfg(feature = "peers")]
    peers::trailers(group);
}

fn status(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("status");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    codes(&mut group);
    messages(&mut group);
    statuses(&mut group);
    group.finish();
}

#[cfg(feature = "peers")]
mod peers {
    use super::{BenchmarkGroup, Code, ESCAPED, Status, TO_ESCAPE, WallTime, black_box};
    use http::{HeaderMap, HeaderName, HeaderValue};
    use percent_encoding::{AsciiSet, CONTROLS, percent_decode, utf8_percent_encode};
    use std::borrow::Cow;

    /// What we escape.
    const ESCAPES: &AsciiSet = &CONTROLS.add(b'%').add(b'~');

    static GRPC_STATUS: HeaderName = HeaderName::from_static("grpc-status");
    static GRPC_MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

    pub(crate) fn encode_message(message: &str) -> Cow<'_, str> {
        utf8_percent_encode(message, ESCAPES).into()
    }

    pub(crate) fn decode_message(bytes: &[u8]) -> Cow<'_, str> {
        percent_decode(bytes).decode_utf8_lossy()
    }

    /// Two trailers in a header map: written, and read.
    pub(crate) fn trailers(group: &mut BenchmarkGroup<'_, WallTime>) {
        let ours = Status::new(Code::DataLoss, TO_ESCAPE);
        group.bench_function("trailers_write/ours", |bencher| {
            bencher.iter(|| {
                let mut trailers = HeaderMap::with_capacity(2);
                trailers.insert(&GRPC_STATUS, HeaderValue::from_static(ours.code().to_ascii()));
                let message = HeaderValue::try_from(super::encode_message(ours.message()).into_owned());
                trailers.insert(&GRPC_MESSAGE, message.expect("printable ASCII"));
                trailers
            });
        });
        let theirs = tonic::Status::new(tonic::Code::DataLoss, TO_ESCAPE);
        group.bench_function("trailers_write/tonic", |bencher| {
            bencher.iter(|| {
                let mut trailers = HeaderMap::with_capacity(2);
                theirs.add_header(&mut trailers).expect("every message has an encoding");
                trailers
            });
        });

        let mut trailers = HeaderMap::new();
        trailers.insert(&GRPC_STATUS, HeaderValue::from_static("15"));
        trailers.insert(&GRPC_MESSAGE, HeaderValue::from_static(ESCAPED));
        group.bench_function("trailers_read/ours", |bencher| {
            let value = |name: &HeaderName| {
                black_box(&trailers).get(name).map(HeaderValue::as_bytes).unwrap_or_default()
            };
            bencher.iter(|| Status::from_trailers(value(&GRPC_STATUS), value(&GRPC_MESSAGE)));
        });
        group.bench_function("trailers_read/tonic", |bencher| {
            bencher.iter(|| tonic::Status::from_header_map(black_box(&trailers)).expect("a status"));
        });
    }
}

criterion_group!(benches, status);
criterion_main!(benches);
