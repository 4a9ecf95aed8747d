//! Words made fit for a terminal.

use handle_watcher_client::Signals;

/// The text on one line, with everything that a terminal might obey or hide written as an escape (contract C15e).
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            // Printable, and only escaped in source code.
            '"' | '\'' | '\\' => escaped.push(character),
            _ => escaped.extend(character.escape_debug()),
        }
    }
    escaped
}

/// JSON may hold control characters above 0x7e as they are; a terminal may not.
pub(crate) fn escape_json(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        if character.is_control() {
            escaped.push_str(&format!("\\u{:04x}", u32::from(character)));
        } else {
            escaped.push(character);
        }
    }
    escaped
}

/// At most so many characters of a text; an ellipsis stands for what was cut off.
pub(crate) fn shorten(text: &str, characters_most: usize) -> String {
    if text.chars().count() <= characters_most {
        return text.to_owned();
    }
    let mut shortened: String = text.chars().take(characters_most.saturating_sub(1)).collect();
    if characters_most > 0 {
        shortened.push('…');
    }
    shortened
}

/// The signals in words, as `hwctl` prints them.
pub(crate) fn show_signals(signals: Signals) -> String {
    let names = [
        (Signals::READABLE, "readable"),
        (Signals::WRITABLE, "writable"),
        (Signals::PEER_CLOSED, "peer-closed"),
        (Signals::PRIORITY, "priority"),
        (Signals::ERROR, "error"),
    ];
    let held = names.iter().filter(|(signal, _)| signals.contains(*signal));
    held.map(|(_, name)| *name).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        assert_eq!(escape("plain 'text' \\ ü"), "plain 'text' \\ ü");
        assert_eq!(escape("a\x1b[2J\n\t\u{9b}\u{202e}"), "a\\u{1b}[2J\\n\\t\\u{9b}\\u{202e}");
    }

    #[test]
    fn json_stays_json() {
        let json = serde_json::json!({ "name": "a\u{9b}2J\u{7f}\n" }).to_string();
        let escaped = escape_json(&json);
        assert!(!escaped.chars().any(char::is_control), "{escaped:?}");
        let read: serde_json::Value = serde_json::from_str(&escaped).expect("JSON");
        assert_eq!(read["name"], "a\u{9b}2J\u{7f}\n");
    }

    #[test]
    fn a_text_is_cut_by_characters() {
        assert_eq!(shorten("äöü", 3), "äöü");
        assert_eq!(shorten("äöüß", 3), "äö…");
        assert_eq!(shorten("äöü", 0), "");
    }
}
