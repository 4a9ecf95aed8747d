//! What each user has, over all sessions.

use handle_watcher_wire::{Code, Result, Status};

use crate::service::config::ServiceConfig;

/// What is limited for a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Thing {
    Session,
    Watch,
    Timer,
    Descriptor,
}

impl Thing {
    fn limit(self, config: &ServiceConfig) -> (u32, &'static str, &'static str) {
        match self {
            Self::Session => (config.sessions_per_user, "sessions", "sessions_per_user"),
            Self::Watch => (config.watches_per_user, "watches", "watches_per_user"),
            Self::Timer => (config.timers_per_user, "timers", "timers_per_user"),
            Self::Descriptor => {
                (config.descriptors_per_user, "descriptors that nothing took yet", "descriptors_per_user")
            }
        }
    }
}

/// Those who have something.
#[derive(Debug, Default)]
pub(super) struct Users(ahash::AHashMap<u32, [u32; 4]>);

impl Users {
    /// One more, if there is room.
    ///
    /// # Errors
    /// `RESOURCE_EXHAUSTED`, naming the limit.
    pub(super) fn take(&mut self, user: u32, thing: Thing, config: &ServiceConfig) -> Result<()> {
        let (limit, what, name) = thing.limit(config);
        let count = &mut self.0.entry(user).or_default()[thing as usize];
        if *count >= limit {
            return Err(Status::new(
                Code::ResourceExhausted,
                format!(
                    "user {user} has {limit} {what} already, over all sessions; end some, or raise {name}"
                ),
            ));
        }
        *count += 1;
        Ok(())
    }

    /// So many more, limit or not. Gives whether the limit is passed.
    pub(super) fn add(&mut self, user: u32, thing: Thing, count: u32, config: &ServiceConfig) -> bool {
        let (limit, ..) = thing.limit(config);
        let counted = &mut self.0.entry(user).or_default()[thing as usize];
        *counted += count;
        *counted > limit
    }

    /// So many less.
    pub(super) fn give(&mut self, user: u32, thing: Thing, count: u32) {
        let Some(counts) = self.0.get_mut(&user) else { return };
        counts[thing as usize] = counts[thing as usize].saturating_sub(count);
        if *counts == [0; 4] {
            self.0.remove(&user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_user_has_a_limit_of_its_own_and_nothing_is_kept_of_who_has_nothing() {
        let config = ServiceConfig { timers_per_user: 2, ..ServiceConfig::default() };
        let mut users = Users::default();
        assert_eq!(users.take(1, Thing::Timer, &config), Ok(()));
        assert_eq!(users.take(1, Thing::Timer, &config), Ok(()));
        let refused = users.take(1, Thing::Timer, &config).expect_err("the limit");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert!(refused.message().contains("timers_per_user"), "{refused}");
        assert_eq!(users.take(2, Thing::Timer, &config), Ok(()));
        assert_eq!(users.take(1, Thing::Watch, &config), Ok(()));
        users.give(1, Thing::Timer, 2);
        users.give(1, Thing::Watch, 1);
        users.give(2, Thing::Timer, 1);
        assert!(users.0.is_empty());
    }
}
