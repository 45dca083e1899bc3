//! Events of one kind: which customer and which product each points at, without a list of either.
//!
//! Every event has a slot of a customer and a slot of a product, both by permutations that are computed and not stored: each event
//! has exactly one of both, and those of a customer or product are found from its slots.

use std::ops::Range;

use crate::degrees::PowerLaw;
use crate::node_data::NodeData;
use crate::random::{Key, Permutation};

/// Units of a weight, so that sums are exact.
const UNIT: f64 = 1024.0;

/// The slots of each entity: those of a class are consecutive, and within it those of an entity.
#[derive(Debug)]
pub(crate) struct Slots {
    classes: u64,
    /// Slots of a class.
    per_class: u64,
    /// Index in `ends` of the first entity of each class, and the number of entities.
    starts: Vec<usize>,
    /// End of the slots of each entity within its class, by class and rank.
    ends: Vec<u32>,
}

impl Slots {
    /// Divides the slots of each class in proportion to the entities' expected degrees.
    pub(crate) fn new(data: &NodeData, law: &PowerLaw, per_class: u64) -> Self {
        let (nodes, classes) = (data.nodes(), data.config.classes as u64);
        let (mut starts, mut ends) = (vec![0], Vec::with_capacity(nodes as usize));
        for class in 0..classes {
            let weight = |rank: u64| (law.quantile((rank as f64 + 0.5) / nodes as f64) * UNIT).round().max(1.0) as u64;
            let ranks = || (class..nodes).step_by(classes as usize);
            let total: u64 = ranks().map(weight).sum();
            let mut sum = 0;
            ends.extend(ranks().map(|rank| {
                sum += weight(rank);
                (u128::from(sum) * u128::from(per_class) / u128::from(total)) as u32
            }));
            starts.push(ends.len());
        }
        Self { classes, per_class, starts, ends }
    }

    pub(crate) fn memory(data: &NodeData) -> u64 {
        4 * data.nodes() + 8 * (data.config.classes as u64 + 1)
    }

    /// The entity that has a slot.
    fn owner(&self, data: &NodeData, slot: u64) -> u32 {
        let (class, at) = (slot / self.per_class, slot % self.per_class);
        let ends = &self.ends[self.starts[class as usize]..self.starts[class as usize + 1]];
        let index = ends.partition_point(|&end| u64::from(end) <= at);
        data.of_rank(index as u64 * self.classes + class) as u32
    }

    /// The slots of an entity.
    fn of(&self, data: &NodeData, entity: u32) -> Range<u64> {
        let rank = data.rank(u64::from(entity));
        let (class, index) = (rank % self.classes, (rank / self.classes) as usize);
        let ends = &self.ends[self.starts[class as usize]..];
        let start = index.checked_sub(1).map_or(0, |before| ends[before]);
        let first = class * self.per_class;
        first + u64::from(start)..first + u64::from(ends[index])
    }
}

/// Events of one kind.
#[derive(Debug)]
pub(crate) struct Events {
    key: Key,
    per_class: u64,
    /// Events of a class whose product is of the class of their customer for sure; the products of all others are mixed.
    inside: u64,
    /// From event to slot of a customer.
    order: Permutation,
    /// Of the events beside those inside.
    mixed: Permutation,
    customers: Slots,
    products: Slots,
}

impl Events {
    pub(crate) fn new(
        key: Key,
        events: u64,
        homophily: f64,
        customers: (&NodeData, &PowerLaw),
        products: (&NodeData, &PowerLaw),
    ) -> Self {
        let classes = customers.0.config.classes as u64;
        let per_class = events / classes;
        let inside = (homophily * per_class as f64).round() as u64;
        let slots = |(data, law): (&NodeData, &PowerLaw)| Slots::new(data, law, per_class);
        Self {
            key,
            per_class,
            inside,
            order: Permutation::new(key.child(0), events),
            mixed: Permutation::new(key.child(1), classes * (per_class - inside)),
            customers: slots(customers),
            products: slots(products),
        }
    }

    pub(crate) fn customer(&self, data: &NodeData, event: u32) -> u32 {
        self.customers.owner(data, self.order.at(u64::from(event)))
    }

    pub(crate) fn product(&self, data: &NodeData, event: u32) -> u32 {
        self.products.owner(data, self.product_slot(self.order.at(u64::from(event))))
    }

    /// The events of a customer, in no order.
    pub(crate) fn of_customer(&self, data: &NodeData, customer: u32) -> impl Iterator<Item = u32> + '_ {
        self.customers.of(data, customer).map(|slot| self.order.inverse(slot) as u32)
    }

    /// The events of a product, in no order.
    pub(crate) fn of_product(&self, data: &NodeData, product: u32) -> impl Iterator<Item = u32> + '_ {
        self.products.of(data, product).map(|slot| self.order.inverse(self.customer_slot(slot)) as u32)
    }

    /// Permutations within a class: of the slots of customers, and of those of products.
    fn within(&self, class: u64) -> [Permutation; 2] {
        [2, 3].map(|side| Permutation::new(self.key.child(side).child(class), self.per_class))
    }

    /// The slot of a product that goes with the slot of a customer.
    fn product_slot(&self, slot: u64) -> u64 {
        let (mut class, mut at) =
            (slot / self.per_class, self.within(slot / self.per_class)[0].at(slot % self.per_class));
        if let Some(mixed) = at.checked_sub(self.inside) {
            (class, at) = self.mix(class, mixed, |mixed| self.mixed.at(mixed));
        }
        class * self.per_class + self.within(class)[1].at(at)
    }

    /// The inverse of [`Events::product_slot`].
    fn customer_slot(&self, slot: u64) -> u64 {
        let class = slot / self.per_class;
        let (mut class, mut at) = (class, self.within(class)[1].inverse(slot % self.per_class));
        if let Some(mixed) = at.checked_sub(self.inside) {
            (class, at) = self.mix(class, mixed, |mixed| self.mixed.inverse(mixed));
        }
        class * self.per_class + self.within(class)[0].inverse(at)
    }

    /// The class and the position there of a mixed event, permuted among those of all classes.
    fn mix(&self, class: u64, at: u64, permute: impl Fn(u64) -> u64) -> (u64, u64) {
        let each = self.per_class - self.inside;
        let mixed = permute(class * each + at);
        (mixed / each, self.inside + mixed % each)
    }
}

#[cfg(test)]
mod tests;
