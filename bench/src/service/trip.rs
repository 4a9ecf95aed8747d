//! A round trip between two clients of a service.

use crate::host::{Host, WithHost};
use crate::pin::Placement;
use crate::round_trip::blocking;
use crate::served::Server;
use crate::subject::Subject;
use crate::waiter::ours::Ours;
use crate::{Result, ours};
use handle_watcher_client::{FrontPolicy, Mode};

/// Two clients of a service in a process of its own, their fronts under `policy`.
pub(crate) fn remote(placement: &Placement, mode: Mode, policy: FrontPolicy) -> Result<Box<dyn Subject>> {
    let (host, address) = Host::service(placement)?;
    let server = if policy == FrontPolicy::Off { Server::Back } else { Server::Front };
    let subject = blocking::between(placement, server, |socket| {
        Ours::new(ours::connect(&address, policy)?, socket, mode)
    })?;
    Ok(Box::new(WithHost { subject, host }))
}
