//! Bytes as a pickle, and as the list of what is asked of it.

use handle_watcher_wire::pickle::{HeaderSize, ReadError, Reader, Writer, find_next, peek_next};

/// How many of the first bytes say what is asked for: one question each.
const QUESTIONS: usize = 16;

/// Asks a frame for what the first bytes say. A question that is answered writes its answer; the frame that this makes
/// has to give the same answers.
pub(crate) fn feed(bytes: &[u8]) {
    let (questions, frame) = bytes.split_at(bytes.len().min(QUESTIONS));
    for header_bytes in [4, 20, 64] {
        let header_size = HeaderSize::new(header_bytes).expect("a multiple of 4");
        if let Some((whole, behind)) = find_next(header_size, frame) {
            assert_eq!(whole.len() + behind.len(), frame.len());
            assert_eq!(peek_next(header_size, frame), Some(whole.len() as u64));
            let exact = Reader::with_header_size(header_size, whole).expect("it was cut exactly");
            ask_all(questions, exact);
        }
    }
    if let Ok(reader) = Reader::new(frame) {
        ask_all(questions, reader);
    }
}

fn ask_all(questions: &[u8], mut reader: Reader<'_>) {
    let mut writer = Writer::new();
    let mut answered = Vec::new();
    for &question in questions {
        let left = reader.remaining_bytes();
        match ask(question, &mut reader, &mut writer) {
            Ok(()) => answered.push(question),
            Err(error) => {
                assert_eq!(reader.remaining_bytes(), 0, "a failed read spends the reader");
                assert_eq!(error.offset_bytes() as usize, reader.payload().len() - left);
                assert!(!error.to_string().is_empty());
            }
        }
        assert!(reader.remaining_bytes() <= left);
    }
    let first = writer.finish().expect("answers are no longer than the frame");
    let mut second = Writer::new();
    let mut reader = Reader::with_header_size(HeaderSize::PLAIN, &first).expect("our own frame");
    for question in answered {
        ask(question, &mut reader, &mut second).expect("it was answered before");
    }
    assert_eq!(second.finish().as_ref(), Ok(&first));
}

fn ask(question: u8, reader: &mut Reader<'_>, writer: &mut Writer) -> Result<(), ReadError> {
    match question % 16 {
        0 => writer.write_bool(reader.read_bool()?),
        1 => writer.write_i32(reader.read_i32()?),
        2 => writer.write_u32(reader.read_u32()?),
        3 => writer.write_u16(reader.read_u16()?),
        4 => writer.write_i64(reader.read_i64()?),
        5 => writer.write_u64(reader.read_u64()?),
        6 => writer.write_long(reader.read_long()?),
        7 => writer.write_f32(reader.read_f32()?),
        8 => writer.write_f64(reader.read_f64()?),
        9 => writer.write_str(reader.read_str()?),
        10 => {
            let text = reader.read_string16()?;
            assert_eq!(text.to_string_lossy(), text.to_string());
            writer.write_string16(&text.units().collect::<Vec<u16>>());
        }
        11 => writer.write_data(reader.read_data()?),
        12 => writer.write_bytes(reader.read_bytes(usize::from(question / 16))?),
        13 => {
            reader.skip(usize::from(question / 16))?;
            writer.write_bytes(&[0; 16][..usize::from(question / 16)]);
        }
        14 => writer.write_attachment_index(reader.read_attachment_index()?),
        // What a count promises is not there once it alone is written, so it is not written.
        _ => {
            let element_bytes = usize::from(question / 16) + 1;
            let count = reader.clone().read_count(element_bytes);
            assert!(
                count.is_err() || count.is_ok_and(|count| count * element_bytes <= reader.remaining_bytes())
            );
        }
    }
    Ok(())
}
