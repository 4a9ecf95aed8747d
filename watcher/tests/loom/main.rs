//! Every order of steps of the small protocols that everything rests on: the state word, the two wake flags, and who
//! looks when. loom tries them all, with up to LOOM_MAX_PREEMPTIONS forced switches.
//!
//! A lost wake or a lost readiness shows as a deadlock, which loom reports. Beside each model stands a wrong order of
//! the same steps that must fail, so that a model which has stopped looking is noticed.
//!
//! `make loom`, or `RUSTFLAGS="--cfg loom" cargo test --release -p handle-watcher --test loom`.
#![cfg(loom)]

mod front;

use handle_watcher::model::{FIRST, Handed, Kernel, Next, Port, Report, Row, Sleep, Trigger};
use handle_watcher::{Code, Mode};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use std::sync::Arc;

fn model(check: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(3));
    builder.check(check);
}

fn join(threads: [thread::JoinHandle<()>; 2]) {
    for thread in threads {
        thread.join().unwrap();
    }
}

/// One descriptor, its node, one row, one client.
struct House {
    kernel: Kernel,
    /// The node's lock, and under it the sequence of the kernel's entry.
    node: Mutex<u64>,
    rows: [Row; 1],
    port: Port,
}

impl House {
    fn new(mode: Mode) -> Arc<Self> {
        let trigger = if mode == Mode::Once { Trigger::OneShot } else { Trigger::Edge };
        Arc::new(Self {
            kernel: Kernel::new(trigger, 1),
            node: Mutex::new(1),
            rows: [Row::live(mode)],
            port: Port::default(),
        })
    }

    fn row(&self) -> &Row {
        &self.rows[0]
    }

    /// As `PollSet::collect`: fires the row if the report is not older than the last change of the entry.
    fn collect(&self, token: u64) -> Option<u32> {
        let sequence = self.node.lock().unwrap();
        if *sequence != token {
            return None;
        }
        self.collect_unchecked()
    }

    fn collect_unchecked(&self) -> Option<u32> {
        let generation = self.row().generation();
        (self.row().fire(generation) == Next::Queue).then_some(generation)
    }

    /// As `PollSet::arm`.
    fn arm(&self) {
        let mut sequence = self.node.lock().unwrap();
        assert!(self.row().arm(FIRST));
        *sequence += 1;
        self.kernel.modify(*sequence);
    }

    /// As `Turn::run`, until somebody wakes it.
    fn turn_until_woken(&self) {
        while let Report::Ready(token) = self.kernel.wait() {
            if let Some(generation) = self.collect(token) {
                self.port.post(self.row(), 0, generation);
            }
        }
    }
}

/// How a client arms again.
#[derive(Clone, Copy)]
enum Arm {
    Right,
    /// The kernel's entry first, without the node's lock: its report may find the row disarmed.
    KernelFirst,
    /// The row alone: the one-shot entry stays off.
    WithoutKernel,
}

/// (a) C3, C4: a client reads and arms again while data comes in. Every byte is told of.
fn once_fires_again(order: Arm) {
    let house = House::new(Mode::Once);
    let writer = Arc::clone(&house);
    let watcher = Arc::clone(&house);
    house.kernel.write();
    let threads =
        [thread::spawn(move || writer.kernel.write()), thread::spawn(move || watcher.turn_until_woken())];
    let mut read = 0;
    loop {
        assert_eq!(house.port.wait(&house.rows), Handed::Ready);
        assert!(house.port.lock().len() <= 1, "C4: at most one undelivered");
        read += house.kernel.read();
        if read == 2 {
            break;
        }
        match order {
            Arm::Right => house.arm(),
            Arm::KernelFirst => {
                let sequence = {
                    let mut sequence = house.node.lock().unwrap();
                    *sequence += 1;
                    *sequence
                };
                house.kernel.modify(sequence);
                assert!(house.row().arm(FIRST));
            }
            Arm::WithoutKernel => assert!(house.row().arm(FIRST)),
        }
    }
    house.kernel.wake();
    join(threads);
}

#[test]
fn no_readiness_is_lost_between_reading_and_arming() {
    model(|| once_fires_again(Arm::Right));
}

#[test]
#[should_panic(expected = "deadlock")]
fn arming_the_kernel_before_the_row_loses_readiness() {
    model(|| once_fires_again(Arm::KernelFirst));
}

#[test]
#[should_panic(expected = "deadlock")]
fn arming_without_the_kernel_loses_readiness() {
    model(|| once_fires_again(Arm::WithoutKernel));
}

/// (b) C5: Ready, Deadline, the end by something else and `unwatch` race for one word.
#[test]
fn a_watch_ends_once_and_is_silent_after_unwatch() {
    model(|| {
        let house = House::new(Mode::Once);
        let (watcher, other) = (Arc::clone(&house), Arc::clone(&house));
        let watcher = thread::spawn(move || {
            for next in [watcher.row().fire(FIRST), watcher.row().expire(FIRST)] {
                if next == Next::Queue {
                    watcher.port.post(watcher.row(), 0, FIRST);
                }
            }
        });
        let other = thread::spawn(move || {
            let next = other.row().end(FIRST, Code::Cancelled);
            if next == Next::Queue {
                other.port.post(other.row(), 0, FIRST);
            }
            next != Next::Ignored
        });
        let before = house.port.hand_out(&house.rows);
        let unwatched = house.row().detach(FIRST);
        if unwatched.is_some() {
            house.port.withdraw(0);
        }
        let after = house.port.hand_out(&house.rows);
        watcher.join().unwrap();
        let ended = other.join().unwrap();
        let late = house.port.hand_out(&house.rows);
        match unwatched {
            Some(was_live) => {
                assert_eq!(
                    (after, late),
                    (Handed::Nothing, Handed::Nothing),
                    "an event after unwatch returned"
                );
                assert!(!matches!(before, Handed::Ended(_)), "unwatch succeeded after Ended was delivered");
                assert_ne!(was_live, ended, "a watch ends exactly once");
            }
            // Only a delivered Ended makes unwatch say NOT_FOUND.
            None => assert_eq!(before, Handed::Ended(Code::Cancelled)),
        }
    });
}

/// (b) C5: a client that only drains sees each thing at most once, and Ended last.
#[test]
fn ended_comes_once_and_last() {
    model(|| {
        let house = House::new(Mode::Edge);
        let (watcher, other) = (Arc::clone(&house), Arc::clone(&house));
        let threads = [
            thread::spawn(move || {
                for next in [watcher.row().fire(FIRST), watcher.row().expire(FIRST)] {
                    if next == Next::Queue {
                        watcher.port.post(watcher.row(), 0, FIRST);
                    }
                }
            }),
            thread::spawn(move || {
                if other.row().end(FIRST, Code::Aborted) == Next::Queue {
                    other.port.post(other.row(), 0, FIRST);
                }
            }),
        ];
        let mut seen = Vec::new();
        while seen.last() != Some(&Handed::Ended(Code::Aborted)) {
            seen.push(house.port.wait(&house.rows));
        }
        join(threads);
        assert_eq!(house.port.hand_out(&house.rows), Handed::Nothing, "after the end: {seen:?}");
        for kind in [Handed::Ready, Handed::Deadline, Handed::Ended(Code::Aborted)] {
            assert!(seen.iter().filter(|&&handed| handed == kind).count() <= 1, "{seen:?}");
        }
    });
}

/// What the stop does with a row that is being registered.
#[derive(Clone, Copy)]
enum Stop {
    /// Sees under the lock whether it is live, and ends it or takes the reservation away.
    OneLook,
    /// Lets go of the lock in between: it may have become live.
    TwoLooks,
}

/// C14a: a watch whose registration succeeded is told of the stop.
fn stop_meets_a_registration(stop: Stop) {
    let house = Arc::new(House {
        kernel: Kernel::new(Trigger::OneShot, 1),
        node: Mutex::new(1),
        rows: [Row::reserved(Mode::Once)],
        port: Port::default(),
    });
    let client = Arc::clone(&house);
    let client = thread::spawn(move || {
        let _node = client.node.lock().unwrap();
        client.row().publish(FIRST)
    });
    let node = house.node.lock().unwrap();
    let is_reserved = house.row().is_reserved();
    let node = match stop {
        Stop::OneLook => node,
        Stop::TwoLooks => {
            drop(node);
            house.node.lock().unwrap()
        }
    };
    let is_ended = if is_reserved {
        house.row().abandon(FIRST);
        false
    } else {
        house.row().end(FIRST, Code::Aborted) == Next::Queue
    };
    drop(node);
    if is_ended {
        house.port.post(house.row(), 0, FIRST);
    }
    let is_registered = client.join().unwrap();
    let told = house.port.hand_out(&house.rows) == Handed::Ended(Code::Aborted);
    assert_eq!(is_registered, told, "registered, and not told of the stop");
}

#[test]
fn a_registration_fails_or_is_told_of_the_stop() {
    model(|| stop_meets_a_registration(Stop::OneLook));
}

#[test]
#[should_panic(expected = "registered, and not told of the stop")]
fn a_stop_that_lets_go_of_the_lock_between_its_looks_misses_one() {
    model(|| stop_meets_a_registration(Stop::TwoLooks));
}

/// How somebody goes to sleep.
#[derive(Clone, Copy)]
enum Park {
    /// Raises the flag, then looks once more.
    Right,
    /// Looks, then raises the flag.
    LookFirst,
}

/// (c) Commands that are queued while the watcher goes to sleep. The queue is a counter without any order of its own,
/// so that only the flag's own fences help.
fn commands_meet_a_sleep(order: Park) {
    struct Commands {
        sleep: Sleep,
        queued: AtomicU32,
        kernel: Kernel,
    }
    let commands = Arc::new(Commands {
        sleep: Sleep::default(),
        queued: AtomicU32::new(0),
        kernel: Kernel::new(Trigger::Edge, 1),
    });
    let send = |commands: Arc<Commands>| {
        move || {
            commands.queued.fetch_add(1, Ordering::Relaxed);
            if commands.sleep.claim(0) {
                commands.kernel.wake();
            }
        }
    };
    let threads = [thread::spawn(send(Arc::clone(&commands))), thread::spawn(send(Arc::clone(&commands)))];
    let mut taken = 0;
    let mut sleeps = 0;
    while taken < 2 {
        let is_empty = || commands.queued.load(Ordering::Relaxed) == 0;
        let sleeps_now = match order {
            Park::Right => {
                commands.sleep.park(Sleep::FOR_EVER);
                is_empty()
            }
            Park::LookFirst => {
                let is_empty = is_empty();
                commands.sleep.park(Sleep::FOR_EVER);
                is_empty
            }
        };
        sleeps += 1;
        if sleeps_now {
            assert_eq!(commands.kernel.wait(), Report::Woken);
        }
        commands.sleep.unpark();
        taken += commands.queued.swap(0, Ordering::Relaxed);
    }
    join(threads);
    assert!(commands.kernel.wakes() <= sleeps, "more than one wake for a sleep");
}

#[test]
fn no_command_is_slept_over() {
    model(|| commands_meet_a_sleep(Park::Right));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_watcher_that_looks_before_it_raises_its_flag_sleeps_for_ever() {
    model(|| commands_meet_a_sleep(Park::LookFirst));
}

/// (c) Only what is due earlier wakes; what is due later is taken at the next turn.
#[test]
fn an_earlier_deadline_wakes_and_a_later_one_does_not() {
    model(|| {
        let sleep = Arc::new(Sleep::default());
        sleep.park(100);
        let (early, late) = (Arc::clone(&sleep), Arc::clone(&sleep));
        let early = thread::spawn(move || early.claim(50));
        let late = thread::spawn(move || late.claim(150));
        let also_early = sleep.claim(60);
        let wakes = u32::from(early.join().unwrap()) + u32::from(also_early);
        assert_eq!(wakes, 1, "one sleep, one wake");
        assert!(!late.join().unwrap(), "not due before the sleep ends");
    });
}

/// (d) Events are posted while the waiter of a port parks.
fn posts_meet_a_parking_waiter(order: Park) {
    let port = Arc::new(Port::default());
    let post = |port: Arc<Port>, number| {
        move || {
            let mut queue = port.lock();
            queue.push(number);
            port.finish_post(queue);
        }
    };
    let threads = [thread::spawn(post(Arc::clone(&port), 0)), thread::spawn(post(Arc::clone(&port), 1))];
    let mut taken = 0;
    let mut parks = 0;
    while taken < 2 {
        {
            let mut queue = port.lock();
            taken += std::mem::take(&mut *queue).len();
            port.publish_count(&queue);
        }
        if taken == 2 {
            break;
        }
        // As `PortQueue::park`: raise the flag, then look once more, without the lock.
        let sleeps = if matches!(order, Park::Right) {
            port.raise();
            !port.looks_ready()
        } else {
            let sleeps = !port.looks_ready();
            port.raise();
            sleeps
        };
        if sleeps {
            parks += 1;
            port.park();
        }
        port.lower();
    }
    join(threads);
    // A post may take the flag of a waiter that then finds its event without sleeping: one wake a raise, never more.
    assert!(port.wakes() <= parks + 2, "more than one wake for a sleep");
}

#[test]
fn no_post_is_slept_over_and_wakes_merge() {
    model(|| posts_meet_a_parking_waiter(Park::Right));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_waiter_that_looks_before_it_raises_its_flag_sleeps_for_ever() {
    model(|| posts_meet_a_parking_waiter(Park::LookFirst));
}

/// (d) A wait whose time is up lowers its flag, and nothing that was posted meanwhile is lost.
#[test]
fn a_wait_that_times_out_leaves_no_flag_behind() {
    model(|| {
        let port = Arc::new(Port::default());
        port.raise();
        let poster = Arc::clone(&port);
        let poster = thread::spawn(move || {
            let mut queue = poster.lock();
            queue.push(0);
            poster.finish_post(queue);
        });
        // The time is up.
        port.lower();
        poster.join().unwrap();
        assert_eq!(port.lock().len(), 1);
        assert!(port.looks_ready(), "what was posted is there for the next look");
        assert!(port.wakes() <= 1);
        assert!(!port.take_flag(), "the flag is down");
    });
}

/// How the watcher posts what it has staged.
#[derive(Clone, Copy)]
enum Post {
    Right,
    /// Trusts the reference: the row may have another owner by now.
    Unchecked,
}

/// (e) C5b, C7c: a reference is staged; before it is posted the row is unwatched and given to another client.
fn a_staged_reference_meets_a_new_owner(how: Post) {
    let house = House::new(Mode::Once);
    let others_port = Port::default();
    let watcher = Arc::clone(&house);
    let watcher = thread::spawn(move || {
        if let Some(generation) = watcher.collect(1) {
            match how {
                Post::Right => watcher.port.post(watcher.row(), 0, generation),
                Post::Unchecked => watcher.port.lock().push(0),
            }
        }
    });
    {
        let mut sequence = house.node.lock().unwrap();
        assert!(house.row().detach(FIRST).is_some());
        *sequence += 1;
    }
    house.port.withdraw(0);
    let generation = house.row().recycle(FIRST, Mode::Once);
    assert_eq!(house.row().fire(generation), Next::Queue, "the new owner has an event of its own");
    others_port.post(house.row(), 0, generation);
    watcher.join().unwrap();
    assert_eq!(house.port.hand_out(&house.rows), Handed::Nothing, "the old client was told of another's row");
    assert_eq!(others_port.hand_out(&house.rows), Handed::Ready);
}

#[test]
fn a_staged_reference_never_reaches_a_new_owner() {
    model(|| a_staged_reference_meets_a_new_owner(Post::Right));
}

#[test]
#[should_panic(expected = "the old client was told of another's row")]
fn a_post_that_trusts_its_reference_reaches_a_new_owner() {
    model(|| a_staged_reference_meets_a_new_owner(Post::Unchecked));
}

/// (e) C7c: a report of the kernel is under way while its number is closed, opened and watched anew.
fn a_report_meets_a_new_registration(is_checked: bool) {
    let house = House::new(Mode::Once);
    house.kernel.write();
    let watcher = Arc::clone(&house);
    let watcher = thread::spawn(move || {
        let Report::Ready(token) = watcher.kernel.wait() else { return };
        let collected = if is_checked { watcher.collect(token) } else { watcher.collect_unchecked() };
        if let Some(generation) = collected {
            watcher.port.post(watcher.row(), 0, generation);
        }
    });
    let generation = {
        let mut sequence = house.node.lock().unwrap();
        assert!(house.row().detach(FIRST).is_some());
        house.port.withdraw(0);
        *sequence += 1;
        house.kernel.replace(*sequence);
        house.row().recycle(FIRST, Mode::Once)
    };
    // So that the watcher's wait ends whatever came first.
    house.kernel.wake();
    watcher.join().unwrap();
    assert_eq!(house.row().take(generation), Handed::Nothing, "nothing was ever written to the new file");
}

#[test]
fn an_old_report_never_reaches_a_new_registration() {
    model(|| a_report_meets_a_new_registration(true));
}

#[test]
#[should_panic(expected = "nothing was ever written to the new file")]
fn a_report_without_a_sequence_reaches_a_new_registration() {
    model(|| a_report_meets_a_new_registration(false));
}

/// (f) C3d: a Level client comes back for more while data comes in. Every byte is told of.
fn a_level_client_comes_back(order: Park) {
    let house = House::new(Mode::Level);
    let writer = Arc::clone(&house);
    let watcher = Arc::clone(&house);
    house.kernel.write();
    let threads =
        [thread::spawn(move || writer.kernel.write()), thread::spawn(move || watcher.turn_until_woken())];
    let mut read = 0;
    loop {
        assert_eq!(house.port.wait(&house.rows), Handed::Ready);
        read += house.kernel.read();
        if read == 2 {
            break;
        }
        // As `Port::come_back`: clear the mark; what came in meanwhile is queued; of the rest, what still holds is armed
        // with the kernel again.
        if matches!(order, Park::Right) {
            match house.row().come_back(FIRST) {
                Next::Queue => house.port.requeue(0),
                Next::Merged if house.kernel.poll() => house.arm(),
                Next::Merged | Next::Ignored => {}
            }
        } else {
            let holds = house.kernel.poll();
            if house.row().come_back(FIRST) == Next::Merged && holds {
                house.arm();
            }
        }
    }
    house.kernel.wake();
    join(threads);
}

#[test]
fn no_readiness_is_lost_while_a_level_client_is_away() {
    model(|| a_level_client_comes_back(Park::Right));
}

#[test]
#[should_panic(expected = "deadlock")]
fn a_level_client_that_forgets_what_came_in_meanwhile_loses_readiness() {
    model(|| a_level_client_comes_back(Park::LookFirst));
}
