//! What a path over a route is for, what it costs, and how much it may carry.

use std::time::Instant;

use punctual_proto::{
    PathError, PathId,
    multipath::{PathBudget, PathRole},
};

/// What the path over a [`Route`](crate::Route) is for and what a byte costs on it. What is left open is normal and costs nothing, unless the peer's
/// application has said otherwise.
///
/// ```
/// use punctual::{Route, RouteTerms, Routes, multipath::PathRole};
///
/// let server = "203.0.113.5:4433".parse()?;
/// let modem = RouteTerms::new().role(PathRole::Backup).cost(0.002);
/// // Whatever leads there; the modem only when nothing else does.
/// let routes = Routes::auto(server).route_on(Route::new("wwan0".parse()?, server), modem);
/// # let _ = routes;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct RouteTerms {
    role: Option<PathRole>,
    cost: Option<f64>,
    budget: Option<PathBudget>,
}

impl RouteTerms {
    /// Nothing is said.
    pub fn new() -> Self {
        Self::default()
    }

    /// Says what the path is for.
    pub fn role(mut self, role: PathRole) -> Self {
        self.role = Some(role);
        self
    }

    /// Says what a byte costs on it, in any unit. What is negative, infinite or not a number is not said to the session.
    pub fn cost(mut self, cost: f64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Says how much may be sent on it over time.
    pub fn budget(mut self, budget: PathBudget) -> Self {
        self.budget = Some(budget);
        self
    }

    /// Says so of a path.
    pub(crate) fn apply(
        self,
        session: &mut punctual_proto::Session,
        now: Instant,
        path: PathId,
    ) -> Result<(), PathError> {
        if let Some(role) = self.role {
            session.set_path_role(now, path, role)?;
        }
        if self.budget.is_some() {
            session.set_path_budget(now, path, self.budget)?;
        }
        self.cost.map_or(Ok(()), |cost| session.set_path_cost(now, path, cost))
    }
}
