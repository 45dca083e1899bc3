//! Operators that were built for a dataset: what is profiled, chosen among and run.

use std::sync::Arc;

use crate::{Batching, Key, Place, Route, Training, Transferring};

/// A route with its batching and transferring operators. Routes to the same place may share a training operator, and hence have
/// none of their own.
#[derive(Debug)]
pub struct RouteOperators {
    /// Keys and places.
    pub route: Route,
    /// The batching operator; several routes may share it.
    pub batching: Arc<dyn Batching>,
    /// The transferring operator.
    pub transferring: Box<dyn Transferring>,
}

/// A training operator with its key and place.
#[derive(Debug)]
pub struct TrainingOperator {
    /// Its key.
    pub key: Key,
    /// The place where it trains.
    pub place: Place,
    /// The operator.
    pub operator: Box<dyn Training>,
}

/// The operators of several routes.
#[derive(Debug, Default)]
pub struct Operators {
    /// The routes.
    pub routes: Vec<RouteOperators>,
    /// The training operators that the routes lead to.
    pub trainers: Vec<TrainingOperator>,
}

impl Operators {
    /// The operators of a single route.
    pub fn of(
        route: Route,
        batching: Arc<dyn Batching>,
        transferring: Box<dyn Transferring>,
        operator: Box<dyn Training>,
    ) -> Self {
        let trainers =
            vec![TrainingOperator { key: route.training.clone(), place: route.trained_at.clone(), operator }];
        Self { routes: vec![RouteOperators { route, batching, transferring }], trainers }
    }

    /// Index of the training operator that `route` leads to.
    pub fn trainer(&self, route: &Route) -> Option<usize> {
        self.trainers.iter().position(|t| t.key == route.training && t.place == route.trained_at)
    }

    /// Indices of the first route to each training operator at `place`.
    pub fn routes_to(&self, place: &Place) -> Vec<usize> {
        let first = |i: &usize| {
            let end = |r: &RouteOperators| (r.route.trained_at.clone(), r.route.training.clone());
            let own = end(&self.routes[*i]);
            own.0 == *place && self.routes[..*i].iter().all(|r| end(r) != own)
        };
        (0..self.routes.len()).filter(first).collect()
    }
}
