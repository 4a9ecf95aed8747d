//! The rules over small texts that break them, and over some that only look like it.

use super::rules::*;
use super::text::{Source, code_of, words};

const SAMPLE_LAYERS: &[&str] = &["words", "sys sync", "rows+list", "port", "turn"];

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

fn imports_of(module: &str, text: &str) -> Vec<String> {
    let path = format!("watcher/src/{module}.rs");
    import_complaints(SAMPLE_LAYERS, module, &source(&path, text))
}

#[test]
fn an_import_from_below_or_beside_is_found() {
    assert_eq!(imports_of("port", "use crate::rows::Row;\nuse crate::sys::futex;").len(), 0);
    let complaints = imports_of("rows", "use crate::sys::region;\nuse crate::port::Port;");
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("watcher/src/rows.rs:2:"), "{complaints:?}");
    assert_eq!(imports_of("sys", "use crate::sync::Mutex;").len(), 1, "its own row is not above it");
    assert_eq!(imports_of("rows", "use crate::list::List;").len(), 0, "two halves of one thing");
    assert_eq!(imports_of("port", "use crate::{rows::{Row, Rows}, turn::Turn, sync::Mutex};").len(), 1);
    assert_eq!(imports_of("port", "fn f() { crate::turn::run() }").len(), 1, "a path in code is an import");
    assert_eq!(imports_of("port", "use super::turn::Turn;").len(), 1, "by another name");
    assert_eq!(imports_of("port", "use crate::Port;").len(), 1, "the root hides which file it is");
}

#[test]
fn what_is_no_import_is_left_alone() {
    assert_eq!(imports_of("port", "// crate::turn\nconst A: &str = \"crate::turn\";").len(), 0);
    assert_eq!(
        imports_of("port", "pub(crate) fn f() {}\nmacro_rules! m { () => { $crate::turn::x() } }").len(),
        0
    );
    assert_eq!(
        imports_of("port", "fn f() {}\n#[cfg(test)]\nmod tests {\n    use crate::turn::Turn;\n}\n").len(),
        0
    );
    let folder = source("watcher/src/sys/epoll.rs", "use super::clock::now;\nuse super::sync;");
    assert_eq!(import_complaints(SAMPLE_LAYERS, "sys", &folder).len(), 0, "a neighbour in the folder");
}

#[test]
fn a_file_without_a_layer_is_found() {
    let complaints = imports_of("stranger", "");
    assert!(complaints[0].contains("`stranger` has no layer"), "{complaints:?}");
}

#[test]
fn unsafe_code_outside_sys_is_found() {
    let text = "#![deny(unsafe_code)]\n// unsafe\nconst A: &str = \"unsafe\";\nfn f() { unsafe { g() } }\n";
    let complaints = unsafe_place_complaints(&source("watcher/src/rows.rs", text));
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("watcher/src/rows.rs:4:"), "{complaints:?}");
    assert_eq!(unsafe_place_complaints(&source("watcher/src/sys/region.rs", text)).len(), 0);
}

#[test]
fn an_unsafe_block_without_a_reason_is_found() {
    let complaints = |text: &str| safety_complaints(&source("sys/a.rs", text)).len();
    assert_eq!(complaints("fn f() {\n    unsafe { g() }\n}\n"), 1);
    assert_eq!(
        complaints("fn f() {\n    // SAFETY: of one.\n    unsafe { g() };\n    unsafe { g() }\n}\n"),
        1
    );
    assert_eq!(complaints("// Only a remark.\nunsafe impl Send for A {}\n"), 1);
    assert_eq!(
        complaints("// SAFETY: a reason\n// on two lines.\n#[rustfmt::skip]\nunsafe impl Send for A {}\n"),
        0
    );
    assert_eq!(
        complaints("    // SAFETY: before the statement.\n    let long =\n        unsafe { g() };\n"),
        0
    );
    assert_eq!(complaints("type Call = unsafe fn(u32);\n"), 0);
}

#[test]
fn a_long_function_is_found() {
    let body = |lines: usize| format!("fn long(a: [u8; 4]) {{\n{}}}\n", "    step('{');\n".repeat(lines));
    let complaints = |text: &str| function_complaints(&source("a.rs", text));
    assert_eq!(complaints(&body(FUNCTION_LINES_MOST - 2)), Vec::<String>::new());
    let long = complaints(&format!("trait A {{ fn short(); }}\n{}", body(FUNCTION_LINES_MOST - 1)));
    assert_eq!(long.len(), 1);
    assert!(long[0].starts_with("a.rs:2: `long` has 71 lines"), "{long:?}");
    let text = format!("const A: fn(u8) = b;\n{}", "// }\n".repeat(100));
    assert_eq!(complaints(&text), Vec::<String>::new(), "a type is no function");
}

#[test]
fn a_long_file_and_a_note_are_found() {
    assert_eq!(file_length_complaints(&source("a.rs", &"\n".repeat(FILE_LINES_MOST))).len(), 0);
    assert_eq!(file_length_complaints(&source("a.rs", &"\n".repeat(FILE_LINES_MOST + 1))).len(), 1);
    let text = format!("// fine\n// {}: later\nlet {}LIST = 1;", NOTES[0], NOTES[0]);
    let complaints = note_complaints(&source("a.rs", &text));
    assert_eq!(complaints.len(), 1, "{complaints:?}");
    assert!(complaints[0].starts_with("a.rs:2:"), "{complaints:?}");
}

#[test]
fn a_test_file_without_a_clause_or_with_a_wrong_one_is_found() {
    let contract =
        "## Words\n- **C9z** no\n## C7 Closed\n- **C7a** yes\n## C12 Pipes (not built yet)\n- **C12a** no\n";
    let known = clauses(contract, true);
    assert_eq!(known.iter().collect::<Vec<_>>(), ["C12", "C12a", "C7", "C7a"]);
    assert_eq!(clauses(contract, false).iter().collect::<Vec<_>>(), ["C7", "C7a"]);
    let complaints = |text: &str| citation_complaints(&source("watcher/tests/a.rs", text), &known).len();
    assert_eq!(complaints("//! Closed behind our back (C7, C7a).\n"), 0);
    assert_eq!(complaints("use std::fs;\n//! C7\n"), 1, "it does not open with it");
    assert_eq!(complaints("//! About CAT7 and C.\n"), 1);
    assert_eq!(complaints("//! C7b and C8.\n"), 2);
    assert_eq!(citation_complaints(&source("watcher/tests/tidy.rs", ""), &known).len(), 0);
}

#[test]
fn literals_and_comments_are_blanked_and_lines_stay() {
    let text = "a /* x /* y */\n z */ b \"q\\\"\n\" c r#\"d\" \"# e '\\'' f '{' g::<'a>() br\"h\" r#type \"\\\\\" i // j\nk";
    let code = code_of(text);
    assert_eq!(code.lines().count(), text.lines().count());
    assert_eq!(words(&code).collect::<Vec<_>>(), ["a", "b", "c", "e", "f", "g", "a", "r", "type", "i", "k"]);
}
