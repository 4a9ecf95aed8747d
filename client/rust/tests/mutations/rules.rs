//! The rules, each with the change of the source that leaves it out.
//!
//! A change that only opens a race sleeps in the gap, so that the race is met in seconds; its line says so.

/// How one rule is left out.
#[derive(Debug)]
pub(crate) struct Mutation {
    pub(crate) rule: &'static str,
    /// Below `watcher/src`.
    pub(crate) file: &'static str,
    /// Stands there exactly once.
    pub(crate) text: &'static str,
    pub(crate) instead: &'static str,
    /// What is wrong with the changed source.
    pub(crate) breaks: &'static str,
}

pub(crate) const MUTATIONS: &[Mutation] = &[
    Mutation {
        rule: "SequenceGrows",
        file: "registration.rs",
        text: "let sequence = (node.sequence() + 1) & SEQUENCE_MASK;",
        instead: "let sequence = node.sequence() & SEQUENCE_MASK;",
        breaks: "every entry of a number in the back has the same token, whatever file it is of",
    },
    Mutation {
        rule: "FrontSequenceGrows",
        file: "front.rs",
        text: "self.sequence.fetch_add(1, Ordering::Relaxed)",
        instead: "self.sequence.fetch_add(0, Ordering::Relaxed)",
        breaks: "every entry of a number in a front has the same token, whatever file it is of",
    },
    Mutation {
        rule: "SequenceLasts",
        file: "wait_set.rs",
        text: "        node.back_rows = 0;",
        instead: "        node.back_rows = 0;
        node.set_sequence(0);",
        breaks: "the sequence of a number begins again with its next file",
    },
    Mutation {
        rule: "GenerationGrows",
        file: "rows.rs",
        text: "let next = reference.generation.checked_add(1);",
        instead: "let next = Some(reference.generation);",
        breaks: "the next owner of a row has the id of the last one",
    },
    Mutation {
        rule: "PostLooksAgain",
        file: "port_queue.rs",
        text: "        let mut queue = self.lock();
        for reference in references {
            let state = rows.row(reference.slot).state.load();
            if state.generation() == reference.generation && state.is_queued() {",
        instead: "        std::thread::sleep(std::time::Duration::from_micros(50));
        let mut queue = self.lock();
        for reference in references {
            let state = rows.row(reference.slot).state.load();
            {",
        breaks: "a row that was unwatched in the last 50 us, or is another's by now, is put into the queue",
    },
    Mutation {
        rule: "UnwatchWithdraws",
        file: "port_queue.rs",
        text: "        dequeue(&mut queue, rows, reference.slot, before.is_child());",
        instead: "",
        breaks: "an unwatched row stays in the queue",
    },
    Mutation {
        rule: "RefusalEnds",
        file: "wait_set.rs",
        text: "    matches!(result, Err(Errno::NOENT | Errno::BADF | Errno::PERM))",
        instead: "    result == Err(Errno::NOTSUP)",
        breaks: "a kernel that says that the number is not the file we know is not believed",
    },
    Mutation {
        rule: "JoinProves",
        file: "wait_set.rs",
        text: "        if !node.rows.is_empty() {
            self.prove(number, &mut node, ended);
        }",
        instead: "",
        breaks: "a watch joins those of a file that its number no longer means",
    },
    Mutation {
        rule: "JoinProvesAgain",
        file: "registration.rs",
        text: "        self.register_front(number, node, front)?;
        if other == NIL {",
        instead: "        std::thread::sleep(std::time::Duration::from_micros(50));
        self.register_front(number, node, front)?;
        if other == NIL || front.port() < u32::MAX {",
        breaks: "a number that becomes another file between the proof and the joining, now 50 us apart, is joined",
    },
    Mutation {
        rule: "KernelUnderLock",
        file: "wait_set.rs",
        text: "            if !rest.is_empty() && is_gone(self.register_back(number, &mut node)) {
                self.end_rows(number, &mut node, Code::NotFound, ended);
            }
        } else if",
        instead: "            if !rest.is_empty() {
                let entry = crate::back::Entry { union: rest, is_persistent: false };
                drop(node);
                std::thread::sleep(std::time::Duration::from_micros(50));
                let _: Result<(), Errno> = self.back.modify(number, entry, token);
            }
        } else if",
        breaks: "the watcher switches an entry on again after it let go of the node, 50 us later: over a newer change",
    },
    Mutation {
        rule: "WatcherLooksLast",
        file: "turn.rs",
        text: "        self.shared.commands().parked_until().park(next.unwrap_or(ParkedUntil::FOR_EVER));
        if !self.commands.is_empty() || self.shared.is_stopping() {
            return Some(0);
        }",
        instead: "        if !self.commands.is_empty() || self.shared.is_stopping() {
            return Some(0);
        }
        std::thread::sleep(Duration::from_micros(50));
        self.shared.commands().parked_until().park(next.unwrap_or(ParkedUntil::FOR_EVER));",
        breaks: "the watcher looks for commands, sleeps for 50 us, and only then says that it has to be woken",
    },
    Mutation {
        rule: "WaiterLooksLast",
        file: "port_queue.rs",
        text: "        self.parked.raise();
        if !self.looks_ready() &&",
        instead: "        let is_empty = !self.looks_ready();
        std::thread::sleep(std::time::Duration::from_micros(50));
        self.parked.raise();
        if is_empty &&",
        breaks: "a waiter looks at its queue, sleeps for 50 us, and only then says that it has to be woken",
    },
    Mutation {
        rule: "FrontWaiterLooksLast",
        file: "port_queue.rs",
        text: "        self.parked.raise_in_front();
        if self.looks_ready() {",
        instead: "        let is_ready = self.looks_ready();
        std::thread::sleep(std::time::Duration::from_micros(50));
        self.parked.raise_in_front();
        if is_ready {",
        breaks: "the same for a waiter that sleeps in its front",
    },
    Mutation {
        rule: "LevelReturns",
        file: "port.rs",
        text: "Outcome::Queue => self.returned.push(reference),",
        instead: "Outcome::Queue => {}",
        breaks: "what came in of a Level row of the back while its client was away is forgotten",
    },
    Mutation {
        rule: "LevelHolds",
        file: "port.rs",
        text: "        if self.away.len() > away_before {",
        instead: "        if self.away.len() < away_before {",
        breaks: "a Level condition that was consumed while its event was queued is told",
    },
    Mutation {
        rule: "StopUnderLock",
        file: "wait_set.rs",
        text: "        let Ok(mut node) = self.lock(number) else { return };
        let before = row.state.load();
        if before.is_reserved() {",
        instead: "        let was_reserved = row.state.load().is_reserved();
        if was_reserved {
            std::thread::sleep(std::time::Duration::from_micros(50));
        }
        let Ok(mut node) = self.lock(number) else { return };
        let before = row.state.load();
        if was_reserved {",
        breaks: "the stop looks at a reserved row 50 us before it takes the lock; what is published meanwhile is not ended",
    },
    Mutation {
        rule: "CommandsFirst",
        file: "turn.rs",
        text: "        let commands = self.take_commands();
        let found = !self.events.is_empty();
        self.fire_ready();",
        instead: "        let found = !self.events.is_empty();
        self.fire_ready();
        let commands = self.take_commands();",
        breaks: "an event is looked at before the watcher has heard of its client",
    },
    Mutation {
        rule: "CommandsAll",
        file: "turn.rs",
        text: "let count = self.commands.len();",
        instead: "let count = self.commands.len().min(1);",
        breaks: "a turn takes one command, so an event may come before its client is heard of",
    },
    Mutation {
        rule: "QueueWaitsUnlocked",
        file: "control.rs",
        text: "            self.send_deadline(reference, deadline_ns)?;
        }",
        instead: "            let number = self.shared.rows().row(reference.slot).descriptor();
            let _held = self.shared.waits.lock(number)?;
            self.send_deadline(reference, deadline_ns)?;
        }",
        breaks: "whoever finds the command queue full waits with a node's lock in its hand",
    },
    Mutation {
        rule: "OneShotRest",
        file: "wait_set.rs",
        text: "            if !rest.is_empty() && is_gone(self.register_back(number, &mut node)) {",
        instead: "            if rest.bits() == u8::MAX && is_gone(self.register_back(number, &mut node)) {",
        breaks: "a one-shot entry of the back stays off although rows of it are armed",
    },
    Mutation {
        rule: "FrontOneShotRest",
        file: "wait_set.rs",
        text: "        if has_turned || !rest.is_empty() {",
        instead: "        if has_turned {",
        breaks: "a one-shot entry of a front stays off although rows of it are armed",
    },
    Mutation {
        rule: "ArmTells",
        file: "wait_set.rs",
        text: "            _ => self.apply(number, &mut node, row, seat.front().map(|front| &**front), ended),",
        instead: "            _ => self.prove(number, &mut node, ended),",
        breaks: "the kernel is asked whether the number is still its file, and not told of an arm",
    },
    Mutation {
        rule: "ChangeTells",
        file: "wait_set.rs",
        text: "            _ => self.apply_exactly(number, &mut node, row, ended),",
        instead: "            _ => self.prove(number, &mut node, ended),",
        breaks: "the kernel is asked whether the number is still its file, and not told of a change",
    },
    Mutation {
        rule: "MoveProves",
        file: "registration.rs",
        text: "        if is_gone(self.leave_back(number, node)) {",
        instead: "        let left = self.leave_back(number, node);
        if left == Err(Errno::NOTSUP) {",
        breaks: "a move to the front takes whatever file the number means now",
    },
    Mutation {
        rule: "MoveAddsFirst",
        file: "registration.rs",
        text: "        let added = self.register_front(number, node, front);",
        instead: "        if is_gone(self.leave_back(number, node)) {
            return self.end_rows(number, node, Code::NotFound, ended);
        }
        std::thread::sleep(std::time::Duration::from_micros(50));
        let added = self.register_front(number, node, front);",
        breaks: "a move leaves the back first; in the 50 us after it the number may get another file",
    },
    Mutation {
        rule: "FrontRebuilds",
        file: "port.rs",
        text: "        if self.stale >= STALE_LIMIT {",
        instead: "        if self.stale == u32::MAX {",
        breaks: "a front that a closed number has poisoned stays as it is",
    },
    Mutation {
        rule: "BellUnderLock",
        file: "port_queue.rs",
        text: "        let mut queue = self.lock();
        // Timers that fired just now are in the queue and not announced yet.
        self.publish_counts(&queue);
        self.settle_bell(&mut queue, was_heard);",
        instead: "        let is_empty = !self.looks_ready();
        std::thread::sleep(std::time::Duration::from_micros(50));
        let mut queue = self.lock();
        match self.seat.front().filter(|_| is_empty) {
            Some(front) => {
                front.hush();
                queue.is_rung = false;
            }
            None => self.settle_bell(&mut queue, was_heard),
        }",
        breaks: "a hand-out that found the queue empty takes a ring back that came 50 us later",
    },
    Mutation {
        rule: "FiresArmedOnly",
        file: "state.rs",
        text: "        if !self.has(ARMED) || hit.is_empty() ||",
        instead: "        if !self.has(LIVE) || hit.is_empty() ||",
        breaks: "a row that is not armed is told",
    },
    Mutation {
        rule: "EndedFollows",
        file: "state.rs",
        text: "            Some(if ended { rest } else { rest.without(QUEUED).with(if away { AWAY } else { 0 }) })",
        instead: "            Some(rest.without(QUEUED).with(if away { AWAY } else { 0 }))",
        breaks: "an Ended that merged with an undelivered Ready is over with that Ready",
    },
];
