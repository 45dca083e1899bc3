//! A group of one trainer is a training operator like any other.

use std::sync::Arc;
use std::time::Duration;

use morphgl_conformance::training::{Subject, check};
use morphgl_group::{GroupMember, HostExchange, Weights, join};
use morphgl_model_core::TrainingSpec;
use morphgl_registry::{Operators, Place, Result, Training, TrainingContext, TrainingOperator};
use morphgl_training_cpu_burn::CpuBurn;
use morphgl_training_cpu_native::{CpuNative, DESCRIPTION, KEY, supports};

fn build(context: &TrainingContext) -> Result<Box<dyn Training>> {
    let refused = TrainingSpec::from_json(&context.spec).is_ok_and(|spec| supports(&spec).is_err());
    let operator: Box<dyn Training> =
        if refused { Box::new(CpuBurn::new(context)?) } else { Box::new(CpuNative::new(context)?) };
    let trainers = vec![TrainingOperator { key: KEY, place: Place::Host, operator }];
    let end = HostExchange::group(1, Duration::from_secs(1)).remove(0);
    let division = Arc::new(Weights::equal(1));
    let member = GroupMember {
        exchange: Box::new(end),
        division,
        num_seeds: 1,
        batch_size: 1,
        stop: None,
        observe: None,
        bucket_bytes: 64,
        virtual_steps: None,
    };
    Ok(join(Operators { routes: Vec::new(), trainers }, member)?.trainers.remove(0).operator)
}

#[test]
fn conformance() {
    check(&Subject { build: &build, takes_given_rows: false, takes_types: true, ..Subject::new(&DESCRIPTION) });
}
