//! Choice among training operators: the fastest, by measurement.

use anyhow::Result;
use morphgl_profile::{CandidateProfile, Progress, Selection, Settings, Watch};
use morphgl_registry::Place;

use crate::Job;

impl Job {
    /// Keeps the training operator with the fastest mini-batches at each place, and the routes to it; the others' memory is
    /// released. Where only one can train the model, nothing is measured.
    ///
    /// A candidate gets mini-batches in its own form: with features, or without where it reads the dataset's itself. Operators
    /// at different places are not compared: all of their routes are planned with.
    ///
    /// # Errors
    ///
    /// A failing operator, by its key; or a stop request.
    pub fn select(
        &mut self,
        settings: &Settings,
        watch: &Watch<'_>,
        progress: &mut dyn FnMut(&Progress),
    ) -> Result<()> {
        let mut places: Vec<Place> = self.operators.trainers.iter().map(|t| t.place.clone()).collect();
        places.dedup();
        for place in places {
            if self.selections.iter().any(|s| s.place == place) {
                continue;
            }
            let unable = self.unable.iter().filter(|(_, at, _)| *at == place);
            let unable: Vec<_> =
                unable.map(|(key, _, why)| CandidateProfile::unable(key.clone(), why.clone())).collect();
            let routes = self.operators.routes_to(&place);
            if routes.is_empty() || routes.len() + unable.len() < 2 {
                continue;
            }
            let select = || morphgl_profile::select(&mut self.operators, &routes, settings, watch, progress);
            let mut selection: Selection = self.context.memory().keeping_freed(select)?;
            selection.candidates.extend(unable);
            let operators = &mut self.operators;
            operators.routes.retain(|r| r.route.trained_at != place || r.route.training == selection.chosen);
            operators.trainers.retain(|t| t.place != place || t.key == selection.chosen);
            self.selections.push(selection);
            self.context.memory().release();
        }
        Ok(())
    }
}
