//! C3h, C5b, C7: what a front does while others change its rows, and a move between two sets.

use std::sync::Arc;

use handle_watcher::model::{Entries, FIRST, FOREIGN, Number, OURS, Row, TokenRead};
use handle_watcher::{Code, Mode};
use loom::thread;

use crate::model;

/// C3h, C5b: a front delivers without the node's lock while the row is unwatched and given to another.
fn a_front_delivers_while_the_row_changes_hands(order: TokenRead, mode: Mode) {
    let row = Arc::new(Row::in_front(mode));
    let waiter = Arc::clone(&row);
    let waiter = thread::spawn(move || waiter.deliver_alone(order));
    assert!(row.detach(FIRST).is_some());
    row.recycle(FIRST, mode);
    if let Some((owner, token)) = waiter.join().unwrap() {
        assert_eq!(owner, token, "an event with another owner's token");
    }
}

#[test]
fn a_front_never_mixes_two_owners() {
    for mode in [Mode::Once, Mode::Edge, Mode::Level] {
        model(move || a_front_delivers_while_the_row_changes_hands(TokenRead::BeforeTheState, mode));
    }
}

#[test]
#[should_panic(expected = "an event with another owner's token")]
fn a_front_that_reads_the_token_last_mixes_two_owners() {
    model(|| a_front_delivers_while_the_row_changes_hands(TokenRead::AfterTheState, Mode::Level));
}

/// How a watch moves between two kernel sets.
#[derive(Clone, Copy)]
enum Move {
    /// Joins the new one, then leaves the old one, which proves whose entry that was.
    Right,
    /// Leaves first: whatever the number means afterwards is joined.
    LeaveFirst,
}

/// C7: a watch moves while its number is closed and opened anew behind our back.
fn a_move_meets_a_new_file(order: Move) {
    let number = Arc::new(Number::default());
    let (back, front) = (Entries::default(), Entries::default());
    let row = Row::live(Mode::Once);
    back.add(&number);
    let owner = Arc::clone(&number);
    let owner = thread::spawn(move || owner.reuse());
    let is_proved = match order {
        Move::Right => {
            front.add(&number);
            let is_proved = back.delete(&number);
            if !is_proved {
                front.delete(&number);
            }
            is_proved
        }
        Move::LeaveFirst => {
            let is_proved = back.delete(&number);
            if is_proved {
                front.add(&number);
            }
            is_proved
        }
    };
    if !is_proved {
        row.end(FIRST, Code::NotFound);
    }
    owner.join().unwrap();
    assert!(!front.has(FOREIGN), "another's file is watched");
    assert!(!is_proved || front.has(OURS), "a live watch is in no set");
}

#[test]
fn a_move_never_takes_another_file_along() {
    model(|| a_move_meets_a_new_file(Move::Right));
}

#[test]
#[should_panic(expected = "another's file is watched")]
fn a_move_that_leaves_first_takes_another_file_along() {
    model(|| a_move_meets_a_new_file(Move::LeaveFirst));
}
