//! What a path is for and what it costs: by the word of our application, or else by the peer's.

use crate::{
    budget::PathBudget,
    role::{PathRole, Terms},
};

/// What our application has said.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct OwnTerms {
    pub(crate) role: Option<PathRole>,
    pub(crate) cost: Option<f64>,
    /// Ours alone: the peer is not told.
    pub(crate) budget: Option<PathBudget>,
}

/// The terms of a path. Where our application has said nothing, what the peer says holds: a server that knows nothing of a client's links goes by
/// the client's word.
#[derive(Debug, Default)]
pub(crate) struct PathTerms {
    pub(crate) own: OwnTerms,
    peers: Terms,
    /// What the peer was told.
    told: Option<Terms>,
}

impl PathTerms {
    pub(crate) fn role(&self) -> PathRole {
        self.own.role.unwrap_or(self.peers.role)
    }

    pub(crate) fn cost(&self) -> f64 {
        self.own.cost.unwrap_or(self.peers.cost)
    }

    /// Whether what goes there costs something, or is counted.
    pub(crate) fn is_metered(&self) -> bool {
        self.cost() > 0.0 || self.own.budget.is_some()
    }

    /// The peer has spoken.
    pub(super) fn hear(&mut self, terms: Terms) {
        self.peers = terms;
    }

    /// What the peer is to be told, if it has not been. Only what our own application says: the peer knows the rest.
    pub(super) fn news(&mut self) -> Option<Terms> {
        let OwnTerms { role, cost, .. } = self.own;
        if (role, cost) == (None, None) {
            return None;
        }
        let terms = Terms { role: role.unwrap_or_default(), cost: cost.unwrap_or(0.0) };
        (self.told.replace(terms) != Some(terms)).then_some(terms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_word_comes_first_and_is_said_once() {
        let mut terms = PathTerms::default();
        assert_eq!((terms.news(), terms.role()), (None, PathRole::Normal));
        terms.hear(Terms { role: PathRole::Backup, cost: 2.0 });
        assert_eq!((terms.news(), terms.role(), terms.cost()), (None, PathRole::Backup, 2.0));
        terms.own.cost = Some(3.0);
        assert_eq!((terms.role(), terms.cost()), (PathRole::Backup, 3.0));
        assert_eq!(terms.news(), Some(Terms { role: PathRole::Normal, cost: 3.0 }));
        assert_eq!(terms.news(), None);
        terms.own.role = Some(PathRole::Normal);
        assert_eq!((terms.news(), terms.role()), (None, PathRole::Normal), "nothing new to the peer");
    }

    #[test]
    fn a_cost_is_a_number() {
        assert!([0.0, 1e300].into_iter().all(Terms::is_cost));
        assert!([-0.0, -1.0, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].into_iter().all(|cost| !Terms::is_cost(cost)));
    }
}
