//! What the tests that run vectors share.
#![allow(dead_code, reason = "each test program uses its part")]

use proptest::prelude::ProptestConfig;
use proptest::test_runner::RngSeed;
use serde_json::Value;

/// A file of vectors.
pub(crate) fn vectors(text: &str) -> Value {
    serde_json::from_str(text).expect("the vectors are JSON")
}

/// The cases under this name.
#[track_caller]
pub(crate) fn cases<'value>(vectors: &'value Value, name: &str) -> &'value Vec<Value> {
    let cases = vectors[name].as_array().expect("a list of cases");
    assert!(!cases.is_empty(), "{name} has no case");
    cases
}

#[track_caller]
pub(crate) fn text<'value>(case: &'value Value, name: &str) -> &'value str {
    case[name].as_str().unwrap_or_else(|| panic!("{case} has no text {name}"))
}

#[track_caller]
pub(crate) fn number(value: &Value) -> usize {
    value.as_u64().and_then(|number| usize::try_from(number).ok()).expect("a small number")
}

/// The bytes that pairs of hexadecimal digits mean.
#[track_caller]
pub(crate) fn bytes(digits: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal digits");
    (0..digits.len()).step_by(2).map(pair).collect()
}

/// The same cases in every run, so that a failure comes back.
pub(crate) fn fixed_cases(cases: u32) -> ProptestConfig {
    ProptestConfig {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..ProptestConfig::default()
    }
}
