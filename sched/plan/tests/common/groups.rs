//! Groups of trainers on devices of a random machine.

use morphgl_plan::{
    Bytes, Candidate, Durations, GroupProblem, GroupTrainer, Linear, LinkUser, Problem, Resource, SharedLink,
};

use super::{Random, hardware, keys};

/// A device with a route batched by the host's workers, and one batched by the device. Seconds by the share of a mini-batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Device {
    /// A worker of the host.
    pub(crate) host: Linear,
    pub(crate) dma: Linear,
    /// Batching by the device.
    pub(crate) device: Linear,
    /// Gathering by the device.
    pub(crate) gather: Linear,
    pub(crate) training: Linear,
}

impl Device {
    /// The problem of device `number` of a host with so many cores, with the durations of a share.
    fn problem(&self, n: usize, number: usize, cores: usize, queued: bool, share: f64) -> Problem {
        let [cuda, pcie] = ["CUDA", "PCIe"].map(|name| format!("{name}:{number}"));
        let seconds = |line: Linear| line.at(share);
        let durations = |workers, batching, transferring| {
            Durations::constant(workers, seconds(batching), seconds(transferring), seconds(self.training))
                .expect("valid")
        };
        let route = |names: [&str; 2], hardware, in_place, durations| Candidate {
            keys: keys(names[0], names[1], "CUDA_Native"),
            hardware,
            in_place,
            on_host: false,
            durations,
            bytes: Bytes::default(),
        };
        let by_host = hardware(&["CPU"], &[&pcie], &[&cuda]);
        let by_device = hardware(&[&cuda, &pcie], &[&cuda, &pcie], &[&cuda]);
        let routes = vec![
            route(["CPU_Neighbor", "PCIe_Dma"], by_host, false, durations(cores, self.host, self.dma)),
            route(["CUDA+PCIe_Neighbor", "CUDA+PCIe_Gather"], by_device, true, durations(1, self.device, self.gather)),
        ];
        let own = |name: String| if queued { Resource::queued(name) } else { Resource::exclusive(name) };
        let resources = vec![Resource::shared("CPU", cores), own(pcie), own(cuda)];
        Problem::new(n, resources, routes).expect("the problem is valid")
    }
}

/// The group of these devices. A half of a mini-batch is measured beside a whole one.
pub(crate) fn group_of_devices(n: usize, devices: &[Device], cores: usize, queued: bool) -> GroupProblem {
    let trainer = |(number, device): (usize, &Device)| {
        let [whole, part] = [1.0, 0.5].map(|share| device.problem(n, number, cores, queued, share));
        GroupTrainer { whole, part }
    };
    GroupProblem {
        trainers: devices.iter().enumerate().map(trainer).collect(),
        part: 0.5,
        links: Vec::new(),
        all_reduce: 0.0,
        single_routes: false,
    }
}

/// A link between the host and these devices, each of which can take this part of its bandwidth.
pub(crate) fn link(name: &str, devices: impl Iterator<Item = usize>, fraction: f64) -> SharedLink {
    let user = |trainer: usize| LinkUser { trainer, resource: format!("PCIe:{trainer}"), fraction };
    SharedLink { name: name.to_string(), users: devices.map(user).collect() }
}

/// How the devices of a random machine differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Devices {
    Alike,
    TwoKinds,
    AllDifferent,
}

fn device(random: &mut Random) -> Device {
    let mut line = || {
        let (whole, fixed) = (random.seconds(), 0.1 * random.unit());
        Linear { fixed: fixed * whole, whole: (1.0 - fixed) * whole }
    };
    Device { host: line(), dma: line(), device: line(), gather: line(), training: line() }
}

/// 1 to 8 devices, durations over three decades with a fixed part of up to a tenth, 1 to 8 cores for each; an all-reduce of up to
/// a tenth of a step; on half of the machines pairs of devices behind a switch, and the host's memory, of all devices.
pub(crate) fn random_group(random: &mut Random, n: usize, devices: Devices) -> GroupProblem {
    let count = 1 + (8.0 * random.unit()) as usize;
    let kinds = [device(random), device(random)];
    let all: Vec<Device> = (0..count)
        .map(|i| match devices {
            Devices::Alike => kinds[0],
            Devices::TwoKinds => kinds[i % 2],
            Devices::AllDifferent => device(random),
        })
        .collect();
    let cores = count * (1 + (8.0 * random.unit()) as usize);
    let queued = random.unit() < 0.8;
    let mut group = group_of_devices(n, &all, cores, queued);
    group.all_reduce = 0.1 * random.unit() * all[0].training.at(1.0);
    if random.unit() < 0.5 {
        let (of_switch, of_memory) = (0.5 + 0.5 * random.unit(), 0.1 + 0.4 * random.unit());
        let pairs = (0..count).step_by(2).map(|i| link(&format!("switch {i}"), i..count.min(i + 2), of_switch));
        group.links = pairs.chain([link("host memory", 0..count, of_memory)]).collect();
    }
    group
}
