//! Which of several training operators trains: the fastest, by measurement.

use anyhow::Result;
use morphgl_execute::RouteOperators;
use morphgl_profile::{Candidate, CandidateProfile, Progress, Selection, Settings, Watch};
use morphgl_registry::Place;

use crate::{Job, TrainingOperator, memory};

impl Job {
    /// Keeps one training operator a place, the one with the fastest mini-batches on this machine, and the routes to it; the
    /// others' memory is given back. Where only one can train the model, nothing is measured.
    ///
    /// Every candidate gets its mini-batches in the form it trains on: with features, or without where it reads the dataset's
    /// itself; what is kept is in the form of the chosen one. Operators at different places are no rivals: all of their routes
    /// are planned with.
    ///
    /// # Errors
    ///
    /// A failing operator, by its key; or `watch` said to stop.
    pub fn select(
        &mut self,
        settings: &Settings,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<()> {
        let mut places: Vec<Place> = self.trainers.iter().map(|t| t.place.clone()).collect();
        places.dedup();
        for place in places {
            if self.selections.iter().any(|s| s.place == place) {
                continue;
            }
            let unable = self.unable.iter().filter(|(_, at, _)| *at == place);
            let unable: Vec<_> =
                unable.map(|(key, _, why)| CandidateProfile::unable(key.clone(), why.clone())).collect();
            let mut candidates = candidates(&mut self.routes, &mut self.trainers, &place);
            if candidates.len() + unable.len() < 2 {
                continue;
            }
            let select = || morphgl_profile::select(&mut candidates, settings, watch, progress);
            let mut selection: Selection = memory::keeping_freed(select)?;
            drop(candidates);
            selection.candidates.extend(unable);
            self.routes.retain(|r| r.route.trained_at != place || r.route.training == selection.chosen);
            self.trainers.retain(|t| t.place != place || t.key == selection.chosen);
            self.selections.push(selection);
            memory::release();
        }
        Ok(())
    }
}

/// The training operators at a place, each with the first route that leads to it: the same one but for who trains.
fn candidates<'a>(
    routes: &'a mut [RouteOperators],
    trainers: &'a mut [TrainingOperator],
    place: &Place,
) -> Vec<Candidate<'a>> {
    let mut trainers: Vec<&mut TrainingOperator> = trainers.iter_mut().filter(|t| t.place == *place).collect();
    let mut candidates = Vec::new();
    for RouteOperators { route, batching, transferring } in routes.iter_mut().filter(|r| r.route.trained_at == *place) {
        if let Some(i) = trainers.iter().position(|t| t.key == route.training) {
            let training = trainers.remove(i).operator.as_mut();
            candidates.push(Candidate { route, batching: &**batching, transferring: &mut **transferring, training });
        }
    }
    candidates
}
