//! Tests of one body in every configuration.

/// Makes a test of each body in each [`Setup`].
macro_rules! in_every_setup {
    ($($body:ident),+ $(,)?) => {
        $crate::util::in_embedded_setups!($($body),+);
        mod remote {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Remote); })+
        }
        mod remote_off {
            $(#[test] fn $body() { super::$body($crate::util::Setup::RemoteOff); })+
        }
        mod remote_exposed {
            $(#[test] fn $body() { super::$body($crate::util::Setup::RemoteExposed); })+
        }
    };
}
pub(crate) use in_every_setup;

/// The same in each [`Setup`] whose watcher is the client's own process's.
macro_rules! in_embedded_setups {
    ($($body:ident),+ $(,)?) => {
        mod own {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Own); })+
        }
        mod off {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Off); })+
        }
        mod always {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Always); })+
        }
        mod exposed {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Exposed); })+
        }
        mod shared {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Shared); })+
        }
        mod tight {
            $(#[test] fn $body() { super::$body($crate::util::Setup::Tight); })+
        }
    };
}
pub(crate) use in_embedded_setups;

/// Makes a test of each body in each [`Setup`] whose watcher is in the client's own process.
macro_rules! in_every_embedded_setup {
    ($($body:ident),+ $(,)?) => {
        mod embedded {
            use super::*;
            $crate::util::in_embedded_setups!($($body),+);
        }
    };
}
pub(crate) use in_every_embedded_setup;

/// The same, each in a process of its own.
macro_rules! in_every_setup_alone {
    ($($body:ident),+ $(,)?) => {
        $crate::util::in_embedded_setups_alone!($($body),+);
        mod remote_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Remote)); })+
        }
        mod remote_off_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::RemoteOff)); })+
        }
        mod remote_exposed_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::RemoteExposed)); })+
        }
    };
}
pub(crate) use in_every_setup_alone;

/// The same in each [`Setup`] whose watcher is the client's own process's, each in a process of its own.
macro_rules! in_embedded_setups_alone {
    ($($body:ident),+ $(,)?) => {
        mod own_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Own)); })+
        }
        mod off_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Off)); })+
        }
        mod always_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Always)); })+
        }
        mod exposed_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Exposed)); })+
        }
        mod shared_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Shared)); })+
        }
        mod tight_alone {
            $(#[test] fn $body() { $crate::util::alone!($body, super::$body($crate::util::Setup::Tight)); })+
        }
    };
}
pub(crate) use in_embedded_setups_alone;

/// The same, each in a process of its own.
macro_rules! in_every_embedded_setup_alone {
    ($($body:ident),+ $(,)?) => {
        mod embedded_alone {
            use super::*;
            $crate::util::in_embedded_setups_alone!($($body),+);
        }
    };
}
pub(crate) use in_every_embedded_setup_alone;
