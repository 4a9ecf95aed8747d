//! C3, C4, C5, C7, C9, C14: each rule that the library is built on is left out of a copy of it, one after the other, and
//! the stress must notice. A rule that nothing needs is a rule to question; a stress that notices nothing checks nothing.
//!
//! `make mutations` runs it. Most are noticed in a few seconds; each gets HANDLE_WATCHER_MUTATION_SECONDS (60) to be
//! missed. HANDLE_WATCHER_MUTATION names the rules to leave out, if it shall not be all of them.

use std::collections::BTreeSet;
use std::fs;
use std::time::Duration;

#[path = "mutations/rules.rs"]
mod rules;
#[path = "mutations/workshop.rs"]
mod workshop;

use rules::{MUTATIONS, Mutation};
use workshop::{Workshop, source_of, top};

#[test]
fn every_mutation_still_applies() {
    for mutation in MUTATIONS {
        let text = fs::read_to_string(source_of(mutation, &top())).expect("a source file");
        let count = text.matches(mutation.text).count();
        assert_eq!(count, 1, "{} is to stand once in {}", mutation.rule, mutation.file);
        assert!(!mutation.breaks.is_empty() && mutation.instead != mutation.text, "{}", mutation.rule);
    }
    let names: BTreeSet<&str> = MUTATIONS.iter().map(|mutation| mutation.rule).collect();
    assert_eq!(names.len(), MUTATIONS.len(), "two rules have one name");
}

#[test]
fn the_table_of_rules_names_them_all() {
    let text = fs::read_to_string(top().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md stands at the top");
    for mutation in MUTATIONS {
        assert!(
            text.contains(&format!("`{}`", mutation.rule)),
            "ARCHITECTURE.md leaves out {}",
            mutation.rule
        );
    }
}

fn wanted() -> Vec<&'static Mutation> {
    let names = std::env::var("HANDLE_WATCHER_MUTATION").unwrap_or_default();
    let names: Vec<&str> = names.split([' ', ',']).filter(|name| !name.is_empty()).collect();
    MUTATIONS.iter().filter(|mutation| names.is_empty() || names.contains(&mutation.rule)).collect()
}

#[test]
#[ignore = "it builds the library once for each rule; `make mutations` runs it"]
fn no_rule_can_be_left_out() {
    let seconds =
        std::env::var("HANDLE_WATCHER_MUTATION_SECONDS").map(|text| text.parse().expect("a number"));
    let time = Duration::from_secs(seconds.unwrap_or(60));
    let shop = Workshop::open();
    let whole = shop.run_stress(&shop.build_stress(), time.min(Duration::from_secs(5)));
    assert!(whole.passes, "the stress fails with every rule in place: {}", whole.text);
    let mut missed = Vec::new();
    for mutation in wanted() {
        let outcome = shop.try_without(mutation, time);
        let told = if outcome.passes { "NOBODY NOTICED" } else { outcome.complaint() };
        println!("{:<20} {:>5.1} s  {told:.100}", mutation.rule, outcome.took.as_secs_f64());
        if outcome.passes {
            missed.push((mutation.rule, mutation.breaks));
        }
    }
    assert!(missed.is_empty(), "left out, and nobody noticed: {missed:#?}");
}
