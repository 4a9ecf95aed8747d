//! The rules: each is a function from one file to complaints.

use std::collections::BTreeSet;

use super::text::{Source, code_of, first_word, line_at, places, words};

/// Test files that stand for no clause: the rules of the house, and the models of single parts.
const WITHOUT_CLAUSE: &[&str] = &["tidy", "loom"];

/// A function that needs more does two things.
pub(crate) const FUNCTION_LINES_MOST: usize = 70;

/// A file that needs more has two nouns.
pub(crate) const FILE_LINES_MOST: usize = 600;

/// Notes to self. They belong in the tracker, where somebody will find them.
pub(crate) const NOTES: &[&str] = &[concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];

/// The row of the table that a name stands in, and the `+` group.
fn layer_of<'table>(layers: &[&'table str], name: &str) -> Option<(usize, &'table str)> {
    let groups =
        layers.iter().enumerate().flat_map(|(row, names)| names.split(' ').map(move |group| (row, group)));
    groups.into_iter().find(|(_, group)| group.split('+').any(|member| member == name))
}

/// The names that a code imports through `crate::` or `super::`, each with its place. The tests of a file, which
/// stand last, may import what they like.
fn imports(code: &str) -> Vec<(usize, &str)> {
    let own = code.find("#[cfg(test)]\nmod ").map_or(code, |tests| &code[..tests]);
    let roots = places(own, "crate").chain(places(own, "super")).filter(|&(at, _)| !own[..at].ends_with('$'));
    let mut names = Vec::new();
    for (at, after) in roots {
        let Some(path) = after.strip_prefix("::") else { continue };
        match path.strip_prefix('{') {
            None => names.push((at, first_word(path))),
            Some(group) => names.extend(group_names(group).into_iter().map(|name| (at, name))),
        }
    }
    names.retain(|(_, name)| !matches!(*name, "" | "self" | "super"));
    names
}

/// The first words of the entries of a braced import, which starts just behind its brace.
fn group_names(group: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let (mut depth, mut entry) = (0_u32, 0);
    for (at, character) in group.char_indices() {
        let closes = character == '}';
        if depth == 0 && (character == ',' || closes) {
            names.push(first_word(group[entry..at].trim_start()));
            entry = at + 1;
        }
        match character {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            _ => {}
        }
    }
    names
}

/// What is wrong with the imports of one file of `watcher/src`, which belongs to `module`.
pub(crate) fn import_complaints(layers: &[&str], module: &str, source: &Source) -> Vec<String> {
    let Some((row, group)) = layer_of(layers, module) else {
        let what = format!("`{module}` has no layer: add it to LAYERS in tidy.rs, below all that it imports");
        return vec![source.complain(1, &what)];
    };
    let code = code_of(&source.text);
    let in_folder = !source.path.ends_with(&format!("src/{module}.rs"));
    let mut complaints = Vec::new();
    for (at, name) in imports(&code) {
        let known = layer_of(layers, name);
        // Inside a folder or a nested module, `super::` names a neighbour, which is the same file for this rule.
        let by_super = code[at..].starts_with("super");
        if name == module || (by_super && (in_folder || known.is_none())) {
            continue;
        }
        let what = match known {
            None => format!("`crate::{name}` is no file: import it from the file that owns it"),
            Some((_, other)) if other == group => continue,
            Some((above, _)) if above < row => continue,
            Some(_) => format!("`{module}` may not import `{name}`: it is not above it in LAYERS of tidy.rs"),
        };
        complaints.push(source.complain(line_at(&code, at), &what));
    }
    complaints
}

/// Unsafe code outside `sys/`.
pub(crate) fn unsafe_place_complaints(source: &Source) -> Vec<String> {
    if source.path.contains("/sys/") {
        return Vec::new();
    }
    let code = code_of(&source.text);
    places(&code, "unsafe")
        .map(|(at, _)| source.complain(line_at(&code, at), "unsafe code lives in sys/: move it there"))
        .collect()
}

/// Unsafe blocks and impls without a sentence that says why they are sound.
pub(crate) fn safety_complaints(source: &Source) -> Vec<String> {
    let code = code_of(&source.text);
    let lines: Vec<&str> = source.text.lines().collect();
    places(&code, "unsafe")
        .filter(|(_, after)| after.trim_start().starts_with('{') || first_word(after.trim_start()) == "impl")
        .map(|(at, _)| line_at(&code, at))
        .filter(|&line| !has_safety_comment(&lines[..line - 1]))
        .map(|line| {
            source.complain(line, "an unsafe block says why it is sound: put a SAFETY comment before it")
        })
        .collect()
}

/// Whether the statement that goes on below these lines has a SAFETY comment before it.
fn has_safety_comment(above: &[&str]) -> bool {
    for line in above.iter().rev().map(|line| line.trim()) {
        if line.starts_with("//") {
            if line.contains("SAFETY:") {
                return true;
            }
        } else if line.is_empty() || (line.ends_with([';', '{', '}']) && !line.starts_with("#[")) {
            return false;
        }
    }
    false
}

/// Functions that are too long.
pub(crate) fn function_complaints(source: &Source) -> Vec<String> {
    let code = code_of(&source.text);
    let mut complaints = Vec::new();
    for (at, after) in places(&code, "fn") {
        let name = first_word(after.trim_start());
        let Some(end) = (!name.is_empty()).then(|| body_end(after)).flatten() else { continue };
        let lines = after[..end].matches('\n').count() + 1;
        if lines > FUNCTION_LINES_MOST {
            let what = format!(
                "`{name}` has {lines} lines; {FUNCTION_LINES_MOST} is the most: give a part its own name"
            );
            complaints.push(source.complain(line_at(&code, at), &what));
        }
    }
    complaints
}

/// Where the body of the function ends whose signature starts here. None for a declaration without a body.
fn body_end(signature: &str) -> Option<usize> {
    let (mut brackets, mut braces) = (0_i32, 0_i32);
    for (at, character) in signature.char_indices() {
        match character {
            '(' | '[' => brackets += 1,
            ')' | ']' => brackets -= 1,
            '{' => braces += 1,
            '}' if braces == 1 => return Some(at),
            '}' => braces -= 1,
            ';' if brackets == 0 && braces == 0 => return None,
            _ => {}
        }
    }
    None
}

pub(crate) fn file_length_complaints(source: &Source) -> Vec<String> {
    let lines = source.text.lines().count();
    let what = format!("{lines} lines; {FILE_LINES_MOST} is the most: one file, one noun");
    (lines > FILE_LINES_MOST).then(|| source.complain(lines, &what)).into_iter().collect()
}

pub(crate) fn note_complaints(source: &Source) -> Vec<String> {
    let mut complaints = Vec::new();
    for (number, line) in (1..).zip(source.text.lines()) {
        if let Some(note) = words(line).find(|word| NOTES.contains(word)) {
            complaints
                .push(source.complain(number, &format!("{note}: do it now or write it into the tracker")));
        }
    }
    complaints
}

/// The clauses of a contract, such as `C7` and `C7a`; those of sections that are not built yet only on demand.
pub(crate) fn clauses(contract: &str, with_unbuilt: bool) -> BTreeSet<String> {
    let mut clauses = BTreeSet::new();
    let mut section_counts = false;
    for line in contract.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            let name = first_word(heading);
            section_counts = is_clause(name) && (with_unbuilt || !heading.contains("(not built yet)"));
            clauses.extend(section_counts.then(|| name.to_owned()));
        } else if let Some(item) = line.strip_prefix("- **") {
            let counts = section_counts && is_clause(first_word(item));
            clauses.extend(counts.then(|| first_word(item).to_owned()));
        }
    }
    clauses
}

/// `C`, a number, and at most one letter.
fn is_clause(word: &str) -> bool {
    let number = word
        .strip_prefix('C')
        .map(|rest| rest.strip_suffix(|it: char| it.is_ascii_lowercase()).unwrap_or(rest));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The clauses that the opening comment of a test file cites.
pub(crate) fn cited(text: &str) -> Vec<&str> {
    let head = text.lines().take_while(|line| line.starts_with("//!"));
    head.flat_map(words).filter(|word| is_clause(word)).collect()
}

pub(crate) fn citation_complaints(source: &Source, known: &BTreeSet<String>) -> Vec<String> {
    if WITHOUT_CLAUSE.contains(&source.stem()) {
        return Vec::new();
    }
    let cited = cited(&source.text);
    if cited.is_empty() {
        return vec![
            source.complain(1, "a test file opens with a `//!` line that cites a clause of CONTRACT.md"),
        ];
    }
    let unknown = cited.into_iter().filter(|clause| !known.contains(*clause));
    unknown.map(|clause| source.complain(1, &format!("CONTRACT.md has no clause {clause}"))).collect()
}
