//! C9b, C10: timers, which are put into the queue one by one and announced once a turn.

use std::time::Duration;

use crate::util::*;

/// Timers fire one by one while the client drains: whenever the descriptor is readable there is something.
#[test]
fn timers_that_fire_during_a_drain_are_there_when_it_is_readable() {
    for setup in [Setup::Exposed, Setup::Always] {
        let mut client = setup.client();
        client.set_capacity(2);
        client.descriptor().unwrap();
        for round in 0..100 {
            for token in 0..40 {
                client.set_timer(Duration::from_micros(token * 3), token).unwrap();
            }
            let mut left = 40;
            while left > 0 {
                let is_readable = is_readable_within(&client.descriptor().unwrap(), Duration::ZERO);
                let count = client.drained().len();
                assert!(
                    !is_readable || count > 0,
                    "{setup:?}, round {round}: readable for nothing, {left} left"
                );
                left -= count;
            }
        }
    }
}
