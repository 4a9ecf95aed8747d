//! C16c: frames that others made and shipped: the headers of four real `.asar` archives are read, and they say what is in
//! the files.
//!
//! `make setup` fetches the archives (the npm package asar 0.9.0, MIT) into `target/vectors` and checks their sums.
#![allow(clippy::panic, reason = "a test that cannot go on says so by panicking")]

mod util;

use std::path::Path;

use handle_watcher_wire::pickle::{HeaderSize, Reader, Writer, find_next};
use serde_json::Value;
use util::{bytes, cases, number, text, vectors};

const VECTORS: &str = include_str!("vectors/pickle.json");

/// One archive, whole.
fn archive(file: &str) -> Vec<u8> {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join("../vectors/package").join(file);
    std::fs::read(&place).unwrap_or_else(|error| {
        panic!(
            "{} cannot be read ({error}): run `make setup` once, with the network there; it fetches this archive",
            place.display()
        )
    })
}

/// The frame at the start of these bytes, and what is behind it.
fn next<'a>(bytes: &'a [u8], file: &str) -> (Reader<'a>, &'a [u8]) {
    let (frame, behind) =
        find_next(HeaderSize::PLAIN, bytes).unwrap_or_else(|| panic!("{file}: no whole frame"));
    (Reader::with_header_size(HeaderSize::PLAIN, frame).expect("it was cut exactly"), behind)
}

/// Holds every file of a folder to the bytes that are there, and gives how many files there are.
fn check_entries(folder: &Value, content_bytes: u64, file: &str) -> usize {
    let entries = folder["files"].as_object().unwrap_or_else(|| panic!("{file}: a folder without files"));
    let mut count = 0;
    for (name, entry) in entries {
        if entry["files"].is_object() {
            count += check_entries(entry, content_bytes, file);
        } else if entry["unpacked"] != true && entry["link"].is_null() {
            let size = entry["size"].as_u64().unwrap_or_else(|| panic!("{file}: {name} has no size"));
            let offset = entry["offset"].as_str().and_then(|digits| digits.parse::<u64>().ok());
            let offset = offset.unwrap_or_else(|| panic!("{file}: {name} has no offset"));
            assert!(offset + size <= content_bytes, "{file}: {name} lies beyond the end");
            count += 1;
        }
    }
    count
}

#[test]
fn the_headers_of_four_real_archives_say_what_is_in_them() {
    let vectors = vectors(VECTORS);
    let files = cases(&vectors["real_files"], "files");
    assert_eq!(files.len(), 4);
    for case in files {
        let file = text(case, "file");
        let whole = archive(file);
        assert_eq!(whole.len(), number(&case["bytes"]), "{file}: another length; run `make setup`");

        let (mut first, behind) = next(&whole, file);
        assert_eq!(whole[..whole.len() - behind.len()], bytes(text(case, "first_pickle_hex")), "{file}");
        let second_bytes = number(&case["second_pickle_bytes"]);
        assert_eq!(first.read_u32().map(|said| said as usize), Ok(second_bytes), "{file}");
        assert!(first.is_at_end(), "{file}");

        let (mut second, content) = next(behind, file);
        assert_eq!(behind.len() - content.len(), second_bytes, "{file}");
        assert_eq!(second.payload().len(), number(&case["second_pickle_payload"]), "{file}");
        if let Some(hex) = case["second_pickle_hex"].as_str() {
            assert_eq!(behind[..second_bytes], bytes(hex), "{file}");
        }
        let directory = second.read_str().expect("a text");
        assert_eq!(directory.len(), number(&case["second_pickle_string_bytes"]), "{file}");
        assert!(second.is_at_end(), "{file}");

        let mut writer = Writer::new();
        writer.write_str(directory);
        assert_eq!(
            writer.finish().expect("short"),
            behind[..second_bytes],
            "{file}: our writer writes the same"
        );

        let directory: Value = serde_json::from_str(directory).expect("JSON");
        assert!(check_entries(&directory, content.len() as u64, file) > 0, "{file} is empty");
    }
}
