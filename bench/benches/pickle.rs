//! Micro benches of frames: an i64, an i32 and a string of 12 to 248 832 bytes. Nothing is sent.
//!
//! - `write`: the values into a frame of its own, with its allocation. `ours` grows from 64 bytes on, `ours-sized` knows
//!   the size beforehand.
//! - `rewrite`: the values into a buffer that is kept and large enough.
//! - `read`: the values out of a frame, the string as a checked view of it.
//!
//! `memcpy` is the floor of writing: the string alone, copied. `utf8` is the floor of reading: the check of the string.
//! The peers check as much as we do.

use criterion::{
    BenchmarkGroup, Criterion, Throughput, criterion_group, criterion_main, measurement::WallTime,
};
use handle_watcher_wire::Result;
use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer};
use std::hint::black_box;
use std::time::Duration;

/// The sizes of Chromium's channel benchmarks: powers of twelve.
const TEXT_BYTES: [usize; 5] = [12, 144, 1728, 20_736, 248_832];

const STAMP: i64 = 1_000_123;
const COUNT: i32 = 50_000;

fn write(writer: &mut Writer, text: &str) {
    writer.write_i64(black_box(STAMP));
    writer.write_i32(black_box(COUNT));
    writer.write_str(text);
}

fn read(frame: &[u8]) -> Result<(i64, i32, &str)> {
    let mut reader = Reader::new(frame)?;
    Ok((reader.read_i64()?, reader.read_i32()?, reader.read_str()?))
}

fn writes(group: &mut BenchmarkGroup<'_, WallTime>, text: &str) {
    let bytes = text.len();
    group.bench_function(format!("write/{bytes}/ours"), |bencher| {
        bencher.iter(|| {
            let mut writer = Writer::new();
            write(&mut writer, black_box(text));
            writer.finish().expect("it fits")
        });
    });
    group.bench_function(format!("write/{bytes}/ours-sized"), |bencher| {
        bencher.iter(|| {
            let mut writer = Writer::with_capacity(HeaderSize::PLAIN, bytes + 20);
            write(&mut writer, black_box(text));
            writer.finish().expect("it fits")
        });
    });
    group.bench_function(format!("write/{bytes}/memcpy"), |bencher| {
        bencher.iter(|| black_box(text).to_owned());
    });
    let mut writer = Writer::new();
    writer.reserve(bytes + 20);
    group.bench_function(format!("rewrite/{bytes}/ours"), |bencher| {
        bencher.iter(|| {
            writer.clear();
            write(&mut writer, black_box(text));
            black_box(writer.frame().expect("it fits"));
        });
    });
    let mut buffer = vec![0; bytes];
    group.bench_function(format!("rewrite/{bytes}/memcpy"), |bencher| {
        bencher.iter(|| {
            buffer.copy_from_slice(black_box(text.as_bytes()));
            black_box(&buffer);
        });
    });
}

fn reads(group: &mut BenchmarkGroup<'_, WallTime>, text: &str) {
    let bytes = text.len();
    let mut writer = Writer::new();
    write(&mut writer, text);
    let frame = writer.finish().expect("it fits");
    group.bench_function(format!("read/{bytes}/ours"), |bencher| {
        bencher.iter(|| read(black_box(&frame)).expect("our own frame"));
    });
    group.bench_function(format!("read/{bytes}/utf8"), |bencher| {
        bencher.iter(|| std::str::from_utf8(black_box(text.as_bytes())).expect("it is text"));
    });
}

fn pickle(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("pickle");
    group.warm_up_time(Duration::from_millis(300)).measurement_time(Duration::from_secs(1));
    for text_bytes in TEXT_BYTES {
        let text = "a".repeat(text_bytes);
        group.throughput(Throughput::Bytes(text_bytes as u64));
        writes(&mut group, &text);
        reads(&mut group, &text);
        #[cfg(feature = "peers")]
        {
            peers::rkyv(&mut group, &text);
            peers::postcard(&mut group, &text);
        }
    }
    group.finish();
}

#[cfg(feature = "peers")]
mod peers {
    use super::{BenchmarkGroup, COUNT, STAMP, WallTime, black_box};
    use rkyv::rancor::Error;
    use rkyv::util::AlignedVec;

    #[derive(rkyv::Archive, rkyv::Serialize)]
    struct Archived {
        stamp: i64,
        count: i32,
        text: String,
    }

    #[derive(serde::Serialize, serde::Deserialize)]
    struct Message<'a> {
        stamp: i64,
        count: i32,
        text: &'a str,
    }

    pub(crate) fn rkyv(group: &mut BenchmarkGroup<'_, WallTime>, text: &str) {
        let bytes = text.len();
        let message = Archived { stamp: STAMP, count: COUNT, text: text.to_owned() };
        group.bench_function(format!("write/{bytes}/rkyv"), |bencher| {
            bencher.iter(|| rkyv::to_bytes::<Error>(black_box(&message)).expect("it fits"));
        });
        let mut kept = Some(AlignedVec::<16>::with_capacity(bytes + 64));
        group.bench_function(format!("rewrite/{bytes}/rkyv"), |bencher| {
            bencher.iter(|| {
                let mut buffer = kept.take().expect("it was put back");
                buffer.clear();
                let written = rkyv::api::high::to_bytes_in::<_, Error>(black_box(&message), buffer);
                black_box(&**kept.insert(written.expect("it fits")));
            });
        });
        let frame = rkyv::to_bytes::<Error>(&message).expect("it fits");
        group.bench_function(format!("read/{bytes}/rkyv"), |bencher| {
            bencher.iter(|| {
                let message =
                    rkyv::access::<ArchivedArchived, Error>(black_box(&frame)).expect("its own frame");
                black_box((message.stamp.to_native(), message.count.to_native(), message.text.as_str()));
            });
        });
    }

    pub(crate) fn postcard(group: &mut BenchmarkGroup<'_, WallTime>, text: &str) {
        let bytes = text.len();
        let message = Message { stamp: STAMP, count: COUNT, text };
        group.bench_function(format!("write/{bytes}/postcard"), |bencher| {
            bencher.iter(|| postcard::to_allocvec(black_box(&message)).expect("it fits"));
        });
        let mut buffer = vec![0; bytes + 64];
        group.bench_function(format!("rewrite/{bytes}/postcard"), |bencher| {
            bencher.iter(|| {
                black_box(postcard::to_slice(black_box(&message), &mut buffer).expect("it fits"));
            });
        });
        let frame = postcard::to_allocvec(&message).expect("it fits");
        group.bench_function(format!("read/{bytes}/postcard"), |bencher| {
            bencher.iter(|| {
                let message = postcard::from_bytes::<Message<'_>>(black_box(&frame)).expect("its own frame");
                black_box((message.stamp, message.count, message.text));
            });
        });
    }
}

criterion_group!(benches, pickle);
criterion_main!(benches);
