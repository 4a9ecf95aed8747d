//! Which file systems tell inotify of every change.

use std::path::Path;

/// Those of disks and memory, whose every change passes this kernel; the numbers are in statfs(2). Network file systems
/// change elsewhere, and /proc and /sys change without anybody writing to them.
const TELLING: [u64; 8] = [
    0xef53,      // ext2, ext3, ext4
    0x9123_683e, // btrfs
    0x5846_5342, // xfs
    0x0102_1994, // tmpfs, also /dev
    0x8584_58f6, // ramfs
    0x794c_7630, // overlayfs
    0xf2f5_2010, // f2fs
    0x2fc1_2fc1, // zfs
];

/// True if the file system a path is on is known to tell. False in doubt.
pub(crate) fn is_telling(path: &Path) -> bool {
    let found = rustix::fs::statfs(path);
    found.is_ok_and(|found| u64::try_from(found.f_type).is_ok_and(|number| TELLING.contains(&number)))
}
