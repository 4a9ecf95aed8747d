//! C3, C4, C5, C6, C7, C8, and C9e, C10, C14 besides: eight threads do random things to one watcher, for half a minute,
//! and a ledger says what each of them may and must be told.
//!
//! HANDLE_WATCHER_STRESS_SECONDS says how long, HANDLE_WATCHER_STRESS_SEED repeats a run: each thread then does the same
//! steps again, though not between the same steps of the others.

#[path = "stress/mod.rs"]
mod stress;

#[test]
fn random_steps_agree_with_the_ledger() {
    let settings = stress::Settings::from_environment(30);
    println!("HANDLE_WATCHER_STRESS_SEED={}", settings.seed);
    match stress::run(settings) {
        Ok(summary) => println!("{summary:?}"),
        Err(complaint) => panic!("{complaint}"),
    }
}
