//! Who may connect, and whose sessions one may see.

use std::os::fd::BorrowedFd;

use rustix::net::sockopt::socket_peercred;

use crate::service::config::ServiceConfig;

/// The super-user.
const ROOT: u32 = 0;

/// Who is at the other end, as it was when it connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) process: u32,
    pub(super) user: u32,
    group: u32,
}

impl Peer {
    /// Whoever connected this socket. None if the kernel does not say.
    pub(super) fn of(socket: BorrowedFd<'_>) -> Option<Self> {
        let credentials = socket_peercred(socket).ok()?;
        Some(Self {
            process: u32::try_from(credentials.pid.as_raw_nonzero().get()).unwrap_or(0),
            user: credentials.uid.as_raw(),
            group: credentials.gid.as_raw(),
        })
    }
}

/// The user this process is.
pub(super) fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The service's own user, root, and those of the lists. `groups` gives the peer's supplementary groups, and is asked only
/// where a list is about groups.
pub(super) fn may_connect(
    peer: Peer,
    groups: impl FnOnce() -> Vec<u32>,
    own_user: u32,
    config: &ServiceConfig,
) -> bool {
    if sees_everything(peer.user, own_user) || config.allow_uids.contains(&peer.user) {
        return true;
    }
    let is_allowed = |group: &u32| config.allow_gids.contains(group);
    !config.allow_gids.is_empty() && (is_allowed(&peer.group) || groups().iter().any(is_allowed))
}

/// Root and the service's own user may list and end everybody's sessions.
pub(super) fn sees_everything(user: u32, own_user: u32) -> bool {
    user == ROOT || user == own_user
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: u32, group: u32) -> Peer {
        Peer { process: 1, user, group }
    }

    #[test]
    fn the_rule() {
        let config =
            ServiceConfig { allow_uids: vec![1001], allow_gids: vec![50, 60], ..ServiceConfig::default() };
        let cases = [
            (peer(1000, 7), vec![], true, "the service's own user"),
            (peer(0, 7), vec![], true, "root"),
            (peer(1001, 7), vec![], true, "a user of the list"),
            (peer(1002, 50), vec![], true, "a primary group of the list"),
            (peer(1002, 7), vec![8, 60], true, "a supplementary group of the list"),
            (peer(1002, 7), vec![8, 9], false, "nobody of these"),
            (peer(50, 1001), vec![1000], false, "a user's number is no group's"),
        ];
        for (peer, groups, may, who) in cases {
            assert_eq!(may_connect(peer, || groups, 1000, &config), may, "{who}");
        }
        assert!(!may_connect(peer(1001, 50), || vec![60], 1000, &ServiceConfig::default()));
        assert!(sees_everything(0, 1000) && sees_everything(1000, 1000) && !sees_everything(1001, 1000));
    }
}
