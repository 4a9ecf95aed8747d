//! A terminal that `hwctl` runs in, and what a person would see there.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use rustix::fs::{Mode, OFlags};
use rustix::process::Signal;
use rustix::pty::OpenptFlags;
use rustix::termios::{Termios, Winsize, tcgetattr, tcsetwinsize};

use crate::program::{Ended, Running};
use crate::{LOOK, PROMPT, sys};

/// A program in a pseudo-terminal, and the screen it has drawn so far.
pub(crate) struct Screen {
    master: File,
    slave: OwnedFd,
    before: Termios,
    parser: vt100::Parser,
    running: Running,
}

impl Screen {
    /// Runs a command in a terminal of that size: all of its standard streams, or only stderr.
    #[track_caller]
    pub(crate) fn run(command: &mut Command, columns: u16, lines: u16, only_errors: bool) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let master = rustix::pty::openpt(flags).expect("a pseudo-terminal");
        rustix::pty::unlockpt(&master).expect("a slave");
        let name = rustix::pty::ptsname(&master, Vec::new()).expect("a name");
        let open = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let slave = rustix::fs::open(name, open, Mode::empty()).expect("a slave");
        rustix::io::ioctl_fionbio(&master, true).expect("a flag");
        set_size(&slave, columns, lines);
        let end = || Stdio::from(slave.try_clone().expect("a copy"));
        command.stderr(end());
        if !only_errors {
            command.stdin(end()).stdout(end());
            sys::in_own_terminal(command);
        }
        let before = tcgetattr(&slave).expect("settings");
        let running = Running::start(command);
        // The command would keep its ends open.
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let parser = vt100::Parser::new(nonzero(lines), nonzero(columns), 0);
        Self { master: File::from(master), slave, before, parser, running }
    }

    pub(crate) fn resize(&mut self, columns: u16, lines: u16) {
        self.parser.screen_mut().set_size(nonzero(lines), nonzero(columns));
        set_size(&self.slave, columns, lines);
    }

    pub(crate) fn press(&mut self, keys: &str) {
        self.master.write_all(keys.as_bytes()).expect("a terminal takes keys");
    }

    pub(crate) fn close_input(&mut self) {
        self.running.close_input();
    }

    /// The terminal goes away; gives what the program comes to.
    #[track_caller]
    pub(crate) fn hang_up(self) -> ExitStatus {
        let Self { master, mut running, .. } = self;
        drop(master);
        running.wait()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.running.signal(signal);
    }

    /// What is seen now.
    pub(crate) fn contents(&mut self) -> String {
        let mut buffer = [0; 4096];
        loop {
            match self.master.read(&mut buffer) {
                Ok(count) if count > 0 => self.parser.process(&buffer[..count]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                _ => return self.parser.screen().contents(),
            }
        }
    }

    /// Waits until the screen is as it should be.
    #[track_caller]
    pub(crate) fn expect(&mut self, what: &str, is_right: impl Fn(&str) -> bool) {
        let until = Instant::now() + PROMPT;
        loop {
            let contents = self.contents();
            if is_right(&contents) {
                return;
            }
            assert!(Instant::now() < until, "{what}: this is on the screen:\n{contents}\n");
            std::thread::sleep(LOOK);
        }
    }

    #[track_caller]
    pub(crate) fn expect_text(&mut self, text: &str) {
        self.expect(text, |contents| contents.contains(text));
    }

    /// Waits for the end of the program; the terminal has to be as it was.
    #[track_caller]
    pub(crate) fn finish_restored(mut self) -> ExitStatus {
        let status = self.wait();
        let contents = self.contents();
        let screen = self.parser.screen();
        assert!(!screen.alternate_screen() && !screen.hide_cursor(), "it is not restored:\n{contents}");
        let after = tcgetattr(&self.slave).expect("settings");
        assert_eq!(after.local_modes, self.before.local_modes);
        assert_eq!(after.input_modes, self.before.input_modes);
        assert_eq!(after.output_modes, self.before.output_modes);
        status
    }

    /// Waits for the end of a program that has only its stderr here.
    #[track_caller]
    pub(crate) fn finish(self) -> (Ended, String) {
        let mut screen = self;
        screen.wait();
        let contents = screen.contents();
        (screen.running.finish(), contents)
    }

    /// A terminal that nobody reads is full some time, so it is read meanwhile.
    #[track_caller]
    fn wait(&mut self) -> ExitStatus {
        let until = Instant::now() + PROMPT;
        loop {
            let contents = self.contents();
            if let Some(status) = self.running.poll() {
                return status;
            }
            assert!(Instant::now() < until, "it does not end:\n{contents}");
            std::thread::sleep(LOOK);
        }
    }
}

fn set_size(slave: &OwnedFd, columns: u16, lines: u16) {
    let size = Winsize { ws_row: lines, ws_col: columns, ws_xpixel: 0, ws_ypixel: 0 };
    tcsetwinsize(slave, size).expect("a size");
}

fn nonzero(number: u16) -> std::num::NonZeroU16 {
    std::num::NonZeroU16::new(number).expect("a size")
}
