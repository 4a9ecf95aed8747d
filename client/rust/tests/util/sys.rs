//! The few things that tests do to the kernel and that Rust has no safe words for.
#![allow(unsafe_code)]

use std::io::Error;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::{Pid, WaitOptions, waitpid};

/// Puts a duplicate of a descriptor at a number; what was there is closed.
pub(crate) fn place_at(descriptor: &impl AsFd, number: RawFd) -> OwnedFd {
    // SAFETY: no pointers; a number that is open is replaced, which is what the caller asks for.
    let placed = unsafe { libc::dup3(descriptor.as_fd().as_raw_fd(), number, libc::O_CLOEXEC) };
    assert_eq!(placed, number, "dup3: {}", Error::last_os_error());
    // SAFETY: the number was made just now, and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(placed) }
}

/// A signalfd for one signal.
pub(crate) fn signal_fd(signal: i32) -> OwnedFd {
    let set = set_of(signal);
    // SAFETY: the set is valid, and -1 asks for a new descriptor.
    let number = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    assert!(number >= 0, "signalfd: {}", Error::last_os_error());
    // SAFETY: the number was made just now, and nobody else owns it.
    unsafe { OwnedFd::from_raw_fd(number) }
}

fn set_of(signal: i32) -> libc::sigset_t {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the pointer is valid for one set.
    let emptied = unsafe { libc::sigemptyset(set.as_mut_ptr()) };
    assert_eq!(emptied, 0);
    // SAFETY: the set was emptied, which initialises it.
    let mut set = unsafe { set.assume_init() };
    // SAFETY: the pointer is valid for one set.
    let added = unsafe { libc::sigaddset(&raw mut set, signal) };
    assert_eq!(added, 0, "a signal number");
    set
}

/// Blocks one signal in the calling thread.
pub(crate) fn block_signal(signal: i32) {
    let set = set_of(signal);
    // SAFETY: the set is valid; the old mask is not asked for.
    let failed = unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) };
    assert_eq!(failed, 0);
}

/// Sends a signal to the calling thread.
pub(crate) fn raise(signal: i32) {
    // SAFETY: no pointers.
    assert_eq!(unsafe { libc::raise(signal) }, 0);
}

/// What the process does at a signal: the address of its handler, or the default, or nothing.
pub(crate) fn disposition(signal: i32) -> usize {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: a null action only asks; the pointer is valid for one action.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    assert_eq!(failed, 0, "sigaction: {}", Error::last_os_error());
    // SAFETY: it was filled above.
    unsafe { action.assume_init() }.sa_sigaction
}

/// Sets a disposition to the default one, which for SIGPIPE ends the process. Rust programs start with it ignored.
pub(crate) fn use_default_disposition(signal: i32) {
    // SAFETY: the default needs no handler.
    let before = unsafe { libc::signal(signal, libc::SIG_DFL) };
    assert_ne!(before, libc::SIG_ERR);
}

extern "C" fn do_nothing(_signal: i32) {}

/// From now on SIGUSR1 interrupts system calls and does nothing else. No call is restarted by itself.
fn let_signals_interrupt() {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    let handler: extern "C" fn(i32) = do_nothing;
    // SAFETY: the pointer is valid for one action, whose all-zero value is legal.
    unsafe { (*action.as_mut_ptr()).sa_sigaction = handler as usize };
    // SAFETY: the action was filled; the handler does nothing, which is safe in a signal handler.
    let failed = unsafe { libc::sigaction(libc::SIGUSR1, action.as_ptr(), std::ptr::null_mut()) };
    assert_eq!(failed, 0, "sigaction: {}", Error::last_os_error());
}

/// Interrupts one thread a thousand times a second, until it is dropped.
#[derive(Debug)]
pub(crate) struct Storm {
    is_over: Arc<AtomicBool>,
    sender: Option<JoinHandle<u64>>,
}

impl Storm {
    /// A storm over the calling thread, which must outlive it.
    pub(crate) fn over_this_thread() -> Self {
        let_signals_interrupt();
        // SAFETY: no arguments; it cannot fail.
        let target = unsafe { libc::pthread_self() };
        let is_over = Arc::new(AtomicBool::new(false));
        let sees_end = Arc::clone(&is_over);
        let sender = std::thread::spawn(move || {
            let mut sent = 0;
            while !sees_end.load(Ordering::Acquire) {
                // SAFETY: the target lives: it joins this thread in `end` before it ends.
                let failed = unsafe { libc::pthread_kill(target, libc::SIGUSR1) };
                assert_eq!(failed, 0);
                sent += 1;
                std::thread::sleep(Duration::from_millis(1));
            }
            sent
        });
        Self { is_over, sender: Some(sender) }
    }

    /// Ends it and gives how many signals were sent.
    pub(crate) fn end(mut self) -> u64 {
        self.is_over.store(true, Ordering::Release);
        self.sender.take().map_or(0, |sender| sender.join().expect("a sender"))
    }
}

impl Drop for Storm {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        if let Some(sender) = self.sender.take() {
            // Only reached by a test that is failing anyway.
            drop(sender.join());
        }
    }
}

/// A forked child that runs a block and ends.
#[derive(Debug)]
pub(crate) struct Forked(Pid);

impl Forked {
    /// Forks. In the child `body` runs on a copy of the calling thread alone; the child ends with 0 if it returned,
    /// with 1 if it panicked.
    pub(crate) fn run(body: impl FnOnce()) -> Self {
        // SAFETY: the child goes on with a copy of this thread alone; glibc makes its allocator usable there, and the
        // child never returns from here.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", Error::last_os_error());
        if pid == 0 {
            let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
            // SAFETY: ends the process at once, without running what belongs to the parent.
            unsafe { libc::_exit(i32::from(outcome.is_err())) };
        }
        Self(Pid::from_raw(pid).expect("a child's number is positive"))
    }

    /// Waits for its end, and fails the test if it panicked or was killed.
    #[track_caller]
    pub(crate) fn expect_success(self) {
        let (_, status) =
            waitpid(Some(self.0), WaitOptions::empty()).expect("our child").expect("it has ended");
        assert_eq!(status.exit_status(), Some(0), "the forked child failed: {status:?}");
    }
}

/// Closes a number behind the back of whoever thinks to own it.
pub(crate) fn close_number(number: RawFd) {
    // SAFETY: no pointers; that somebody may be surprised is what the caller tests.
    let failed = unsafe { libc::close(number) };
    assert_eq!(failed, 0, "close {number}: {}", Error::last_os_error());
}

/// True if a number is open in this process.
pub(crate) fn is_open(number: RawFd) -> bool {
    // SAFETY: no pointers; it only asks.
    unsafe { libc::fcntl(number, libc::F_GETFD) >= 0 }
}

/// Makes closing a TCP socket wait until its data is sent, or for so many seconds.
pub(crate) fn set_linger(socket: &impl AsFd, seconds: i32) {
    let linger = libc::linger { l_onoff: 1, l_linger: seconds };
    let size = u32::try_from(size_of::<libc::linger>()).expect("small");
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is valid for that many bytes.
    let failed = unsafe {
        libc::setsockopt(number, libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
    };
    assert_eq!(failed, 0, "setsockopt: {}", Error::last_os_error());
}

/// Makes an IPv4 socket keep the errors that come back to it in a queue of their own.
pub(crate) fn keep_errors(socket: &impl AsFd) {
    let on: libc::c_int = 1;
    let size = u32::try_from(size_of::<libc::c_int>()).expect("small");
    let number = socket.as_fd().as_raw_fd();
    // SAFETY: the pointer is valid for that many bytes.
    let failed =
        unsafe { libc::setsockopt(number, libc::IPPROTO_IP, libc::IP_RECVERR, (&raw const on).cast(), size) };
    assert_eq!(failed, 0, "setsockopt: {}", Error::last_os_error());
}

/// True if a number that is open is closed by the execution of another program.
pub(crate) fn is_close_on_exec(number: RawFd) -> bool {
    // SAFETY: no pointers; it only asks.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    assert!(flags >= 0, "fcntl {number}: {}", Error::last_os_error());
    flags & libc::FD_CLOEXEC != 0
}

/// Adds a descriptor that belongs to somebody else to a poll set of our own.
pub(crate) fn add_number_to_poll_set(set: &impl AsFd, number: RawFd) {
    // SAFETY: the kernel checks the number, and nothing is read, written or closed through it.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    let flags = rustix::event::epoll::EventFlags::IN;
    rustix::event::epoll::add(set, borrowed, rustix::event::epoll::EventData::new_u64(1), flags)
        .expect("an entry");
}

/// Gives up root, if this process has it. Only in a forked child.
pub(crate) fn become_nobody() {
    const NOBODY: libc::uid_t = 65_534;
    if rustix::process::geteuid().is_root() {
        // SAFETY: no pointers.
        let failed = unsafe { libc::setresuid(NOBODY, NOBODY, NOBODY) };
        assert_eq!(failed, 0, "setresuid: {}", Error::last_os_error());
    }
}
