//! The client: a control handle and a port in one value.

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use handle_watcher::{
    ClientConfig, Config, ConnectConfig, Control, Deadline, Events, NotifiedPort, Notify, Port, Result,
    Watcher, connect,
};

use crate::asynchronous::AsyncClient;
use crate::channel::ChannelClient;
use crate::stream::EventStream;

/// One client of a watcher: registers handles and timers, and waits for their events.
///
/// Every method of [`Control`] can be called on it; [`control`](Self::control) gives a clone for other threads. Waiting
/// takes `&mut self`, so that there is one waiter at a time. Dropping it takes every watch back, closes what it was
/// given on the dropping thread, and, if it has a watcher of its own, stops and joins that.
///
/// # Example
/// ```
/// use handle_watcher_client::{Client, EventKind, Events, Mode, Signals};
/// use std::io::Write;
///
/// let mut client = Client::embedded()?;
/// let (reader, mut writer) = std::io::pipe()?;
/// let watch = client.watch(&reader, Signals::READABLE, Mode::Once, 7)?;
/// writer.write_all(b"x")?;
/// let mut events = Events::with_capacity(16);
/// client.wait(&mut events, None)?;
/// let event = events.as_slice()[0];
/// assert_eq!((event.watch, event.token, event.kind), (watch, 7, EventKind::Ready));
/// assert!(event.satisfied.contains(Signals::READABLE));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client<P = Port> {
    // Dropped in this order: the port takes its watches back before the watcher stops.
    port: P,
    control: Control,
    /// The watcher, if it is this client's own.
    _own: Option<Watcher>,
}

impl Client {
    /// A client with a watcher of its own, both set up by default.
    ///
    /// # Errors
    /// As [`Watcher::spawn`] and [`Watcher::client`].
    pub fn embedded() -> Result<Self> {
        Self::embedded_with(Config::default(), ClientConfig::default())
    }

    /// A client with a watcher of its own.
    ///
    /// # Errors
    /// As [`Watcher::spawn`] and [`Watcher::client`].
    pub fn embedded_with(config: Config, client_config: ClientConfig) -> Result<Self> {
        let watcher = Watcher::spawn(config)?;
        let (control, port) = watcher.client(client_config)?;
        Ok(Self { port, control, _own: Some(watcher) })
    }

    /// A client of a watcher that others use too, set up by default. Many clients of one watcher, a thread each, cost
    /// one thread altogether beyond their own.
    ///
    /// # Errors
    /// As [`Watcher::client`].
    pub fn attach(watcher: &Watcher) -> Result<Self> {
        Self::attach_with(watcher, ClientConfig::default())
    }

    /// A client of a watcher that others use too.
    ///
    /// # Errors
    /// As [`Watcher::client`].
    pub fn attach_with(watcher: &Watcher, client_config: ClientConfig) -> Result<Self> {
        let (control, port) = watcher.client(client_config)?;
        Ok(Self { port, control, _own: None })
    }

    /// A client of a service in another process, which listens at a socket's path (`@name`: an abstract name). It does and
    /// promises what every other client does; if the service is lost, its watches end with `UNAVAILABLE`.
    ///
    /// # Errors
    /// As [`connect`](handle_watcher::connect).
    pub fn connect(path: impl AsRef<Path>) -> Result<Self> {
        Self::connect_with(path, &ConnectConfig::default(), ClientConfig::default())
    }

    /// A client of a service in another process.
    ///
    /// # Errors
    /// As [`connect`](handle_watcher::connect).
    pub fn connect_with(
        path: impl AsRef<Path>,
        connect_config: &ConnectConfig,
        client_config: ClientConfig,
    ) -> Result<Self> {
        let (control, port) = connect(path.as_ref(), connect_config, client_config)?;
        Ok(Self { port, control, _own: None })
    }

    /// Turns the client into one that is told through a `crossbeam_channel::Receiver`, for `select!`.
    ///
    /// # Errors
    /// `FAILED_PRECONDITION` if it has a Level watch, or after a fork; the client is dropped then.
    pub fn into_channel(self) -> Result<ChannelClient> {
        ChannelClient::new(self)
    }

    /// Turns the client into a `Stream` of its events, for any executor.
    ///
    /// # Errors
    /// As [`into_channel`](Self::into_channel).
    pub fn into_stream(self) -> Result<EventStream> {
        EventStream::new(self)
    }

    /// Turns the client into one whose watches and timers are awaited, under any executor.
    ///
    /// # Errors
    /// As [`into_channel`](Self::into_channel).
    pub fn into_async(self) -> Result<AsyncClient> {
        AsyncClient::new(self)
    }

    /// Turns the client into one that calls `notifier` when events wait; see [`Port::into_notified`].
    ///
    /// # Errors
    /// As [`into_channel`](Self::into_channel).
    pub fn into_notified(self, notifier: Arc<dyn Notify>) -> Result<Client<NotifiedPort>> {
        let port = self.port.into_notified(notifier)?;
        Ok(Client { port, control: self.control, _own: self._own })
    }

    /// Waits until something can be handed out, or until `timeout` passed (`None`: for ever); see [`Port::wait`].
    ///
    /// # Errors
    /// As [`Port::drain`].
    pub fn wait(&mut self, events: &mut Events, timeout: Option<Duration>) -> Result<usize> {
        self.port.wait(events, timeout)
    }

    /// Waits until something can be handed out, or until `deadline`; see [`Port::wait_until`].
    ///
    /// # Errors
    /// As [`Port::drain`].
    pub fn wait_until(&mut self, events: &mut Events, deadline: impl Into<Deadline>) -> Result<usize> {
        self.port.wait_until(events, deadline)
    }

    /// A descriptor for foreign event loops, readable exactly while the next [`drain`](Self::drain) would return
    /// something; see [`Port::descriptor`].
    ///
    /// # Errors
    /// As [`Port::descriptor`].
    pub fn descriptor(&mut self) -> Result<BorrowedFd<'_>> {
        self.port.descriptor()
    }

    /// Hands out what is there, without blocking; see [`Port::drain`].
    ///
    /// # Errors
    /// As [`Port::drain`].
    pub fn drain(&mut self, events: &mut Events) -> Result<usize> {
        self.port.drain(events)
    }
}

impl<P> Client<P> {
    /// The control handle. Clone it to register, wake or end from other threads.
    pub fn control(&self) -> &Control {
        &self.control
    }

    /// The port, for what only it can do.
    pub fn port_mut(&mut self) -> &mut P {
        &mut self.port
    }
}

impl<P> Deref for Client<P> {
    type Target = Control;

    fn deref(&self) -> &Control {
        &self.control
    }
}
