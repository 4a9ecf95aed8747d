//! A Rust text as the rules see it: code without comments and literals, and the words in it.

use std::path::Path;

/// One file of the house.
pub(crate) struct Source {
    /// The path from the top of the repository, for complaints.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl Source {
    pub(crate) fn complain(&self, line: usize, what: &str) -> String {
        format!("{}:{line}: {what}", self.path)
    }

    /// The name without folder and ending.
    pub(crate) fn stem(&self) -> &str {
        Path::new(&self.path).file_stem().and_then(|stem| stem.to_str()).unwrap_or_default()
    }
}

/// The code of a text. Comments, strings and characters are blanked out; lines stay where they are.
pub(crate) fn code_of(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut code = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let after_word = at > 0 && is_word(characters[at - 1]);
        let length = literal_length(&characters[at..], after_word).min(characters.len() - at);
        let blank = characters[at..at + length].iter().map(|&it| if it == '\n' { '\n' } else { ' ' });
        code.extend(blank);
        if length == 0 {
            code.push(characters[at]);
        }
        at += length.max(1);
    }
    code
}

/// How long the comment or literal is that starts here. Zero when none does.
fn literal_length(rest: &[char], after_word: bool) -> usize {
    match rest {
        ['/', '/', ..] => rest.iter().position(|&it| it == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => comment_length(rest),
        ['"', ..] => string_length(rest),
        ['r', ..] if !after_word => raw_string_length(rest, 1),
        ['b' | 'c', 'r', ..] if !after_word => raw_string_length(rest, 2),
        ['\'', '\\', _, after @ ..] => 3 + after.iter().position(|&it| it == '\'').map_or(0, |at| at + 1),
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

fn comment_length(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            break;
        }
    }
    at
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() && rest[at] != '"' {
        at += if rest[at] == '\\' { 2 } else { 1 };
    }
    at + 1
}

/// `prefix` is the length of what stands before the hashes. Zero for what is no raw string, such as `r#type`.
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&it| it == '#').count();
    let open = prefix + hashes;
    if rest.get(open) != Some(&'"') {
        return 0;
    }
    let closes = |at: &usize| {
        rest[*at] == '"' && rest[at + 1..].iter().take(hashes).filter(|&&it| it == '#').count() == hashes
    };
    (open + 1..rest.len()).find(closes).map_or(rest.len(), |at| at + 1 + hashes)
}

fn is_word(character: char) -> bool {
    character.is_alphanumeric() || character == '_'
}

/// The words of a text.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character| !is_word(character)).filter(|word| !word.is_empty())
}

/// The word at the start of a text; empty when there is none.
pub(crate) fn first_word(text: &str) -> &str {
    let end = text.find(|character| !is_word(character)).unwrap_or(text.len());
    &text[..end]
}

/// Where a whole word stands in a text, and what follows it.
pub(crate) fn places<'text>(text: &'text str, word: &'text str) -> impl Iterator<Item = (usize, &'text str)> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let after = &text[at + word.len()..];
        let whole = !text[..at].ends_with(is_word) && !after.starts_with(is_word);
        whole.then_some((at, after))
    })
}

/// The number of the line in which this place lies.
pub(crate) fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}
