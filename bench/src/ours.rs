//! Handle Watcher as the benches use it.

use crate::Result;
use crate::pin::Placement;
use handle_watcher_client::{Client, ClientConfig, Config, ConnectConfig, Events, FrontPolicy, Watcher};
use std::time::Duration;

/// How long both sides of `back-spin` look before they park. A turn of the loop takes a few microseconds; the rest
/// is patience with the machine, so that one interruption does not show as a parked hop.
pub(crate) const SPIN: Duration = Duration::from_millis(1);

/// Our default configuration, with the watcher thread where the placement wants it.
pub(crate) fn config(placement: &Placement) -> Config {
    Config { affinity: Some(vec![placement.far()]), ..Config::default() }
}

/// A watcher with that configuration.
pub(crate) fn watcher(placement: &Placement) -> Result<Watcher> {
    Ok(Watcher::spawn(config(placement))?)
}

/// A client of that watcher, its front under `policy`.
pub(crate) fn attach(watcher: &Watcher, policy: FrontPolicy) -> Result<Client> {
    Ok(Client::attach_with(watcher, ClientConfig { front: policy, ..ClientConfig::default() })?)
}

/// A client of the service at that address, its front under `policy`.
pub(crate) fn connect(address: &str, policy: FrontPolicy) -> Result<Client> {
    let client_config = ClientConfig { front: policy, ..ClientConfig::default() };
    Ok(Client::connect_with(address, &ConnectConfig::default(), client_config)?)
}

/// A client with a watcher of its own, its front under `policy`.
pub(crate) fn client(placement: &Placement, policy: FrontPolicy) -> Result<Client> {
    let client_config = ClientConfig { front: policy, ..ClientConfig::default() };
    Ok(Client::embedded_with(config(placement), client_config)?)
}

/// A client with a watcher of its own, both of which spin.
pub(crate) fn spinning_client(placement: &Placement) -> Result<Client> {
    let config = Config { spin: SPIN, ..config(placement) };
    Ok(Client::embedded_with(config, ClientConfig { spin: SPIN, front: FrontPolicy::Off })?)
}

/// Waits until at least one event is there.
pub(crate) fn wait(client: &mut Client, events: &mut Events) -> Result<()> {
    while client.wait(events, None)? == 0 {}
    Ok(())
}
