//! The rows of a relational database as those of a typed graph.

use morphgl_graph_store::Types;

use super::events::{Events, Slots};
use super::{KEYS, RelationalTask};
use crate::degrees::PowerLaw;
use crate::memory::Footprint;
use crate::node_data::NodeData;
use crate::random::{Key, Purpose};
use crate::relations::max_share;
use crate::schema::BlocksByType;
use crate::typed_output::{TaskModel, TypedModel, feature_arrays};
use crate::typed_rows::{TypedBuffers, TypedRows};

/// The first day, 2020-01-01 in days since 1970, and the number of days.
const FIRST_DAY: i64 = 18_262;
const DAYS: u64 = 1_096;

/// Numbers of node types.
const PRODUCT: usize = 1;
const ORDER: usize = 2;
const REVIEW: usize = 3;

/// Nodes of a block of events, and edges of a block of entities, as a rule.
const EVENTS: u64 = 1 << 15;
const EDGES: u64 = 1 << 17;

/// A checked configuration.
#[derive(Debug)]
pub(crate) struct Tables {
    pub(crate) types: Types,
    /// Data of the nodes of each type.
    pub(crate) data: Vec<NodeData>,
    /// Laws of the events of a customer and of a product.
    pub(crate) laws: [PowerLaw; 2],
    pub(crate) homophily: f64,
    pub(crate) seed: u64,
    pub(crate) task: RelationalTask,
}

impl Tables {
    /// Nodes of a block of each type.
    fn block_nodes(&self) -> [u64; 4] {
        let events = self.data[2].nodes().max(self.data[3].nodes());
        let of_entities = |entities: u64| entities.div_ceil(events.div_ceil(EDGES));
        [of_entities(self.data[0].nodes()), of_entities(self.data[1].nodes()), EVENTS, EVENTS]
    }

    /// Upper bound of the edges of one type into a block.
    fn max_edges(&self) -> u64 {
        let blocks = self.block_nodes();
        let of_entities = [0, 1].map(|entity| {
            let (nodes, classes) = (self.data[entity].nodes() as f64, self.data[entity].config.classes as f64);
            let [share, _] = max_share(blocks[entity] as f64, nodes, classes, Some(&self.laws[entity]));
            // An entity's slots are rounded.
            let events = self.data[2].nodes().max(self.data[3].nodes()) as f64;
            (events * share + 2.0 * blocks[entity] as f64) as u64
        });
        of_entities.into_iter().fold(EVENTS, u64::max)
    }

    pub(crate) fn footprint(&self) -> Footprint {
        let means: u64 = self.data.iter().map(NodeData::means_bytes).sum();
        let slots: u64 = self.data[..2].iter().map(|data| 2 * Slots::memory(data)).sum();
        let features = self.data.iter().map(NodeData::features_memory);
        let rows = self.block_nodes().into_iter().max().unwrap_or(0);
        Footprint {
            resident: slots + means,
            build: 0,
            rows: TypedBuffers::memory(rows, 2, self.max_edges()),
            features: features.max_by_key(|memory| memory.block).expect("there are node types"),
            labels: TypedBuffers::labels_memory(self.task == RelationalTask::NextOrder),
        }
    }
}

/// The database of a configuration.
#[derive(Debug)]
pub(crate) struct Database {
    tables: Tables,
    blocks: BlocksByType,
    /// Orders and reviews.
    events: [Events; 2],
}

impl Database {
    pub(crate) fn new(mut tables: Tables) -> Self {
        tables.data.iter_mut().for_each(NodeData::make_means);
        let key = Key::new(tables.seed, Purpose::Edges);
        let events = [0, 1].map(|kind| {
            let [customers, products] = [0, 1].map(|entity| (&tables.data[entity], &tables.laws[entity]));
            Events::new(key.child(kind), tables.data[2 + kind as usize].nodes(), tables.homophily, customers, products)
        });
        Self { blocks: BlocksByType::new(&tables.data, &tables.block_nodes()), tables, events }
    }

    /// The number of a review, `None` for another node.
    fn review(&self, node: u64) -> Option<u64> {
        node.checked_sub(u64::from(self.tables.types.range(REVIEW).start))
    }

    /// Number of events of a type on the first day, which are the first by position.
    fn first_day(&self, event_type: usize) -> u64 {
        self.tables.data[event_type].nodes().div_ceil(DAYS)
    }

    /// The order that a row of the task asks for.
    fn next_order(&self, row: u64) -> u64 {
        self.tables.data[ORDER].at_position(self.first_day(ORDER) + row)
    }

    /// The day of an event.
    fn day(&self, event_type: usize, event: u64) -> i64 {
        let data = &self.tables.data[event_type];
        FIRST_DAY + (u128::from(data.position(event)) * u128::from(DAYS) / u128::from(data.nodes())) as i64
    }
}

/// One row per order but those of the first day, by position: its customer on the day before.
impl TaskModel for Database {
    fn num_rows(&self) -> u64 {
        self.tables.data[ORDER].nodes() - self.first_day(ORDER)
    }

    fn row(&self, row: u64) -> (u32, i64) {
        let order = self.next_order(row);
        (self.events[0].customer(&self.tables.data[0], order as u32), self.day(ORDER, order) - 1)
    }
}

impl TypedModel for Database {
    fn types(&self) -> &Types {
        &self.tables.types
    }

    fn num_classes(&self) -> usize {
        self.tables.data[0].config.classes
    }

    fn features(&self) -> Vec<(String, Vec<&NodeData>)> {
        feature_arrays(&self.tables.data, false)
    }

    fn task(&self) -> Option<&dyn TaskModel> {
        (self.tables.task == RelationalTask::NextOrder).then_some(self as &dyn TaskModel)
    }

    fn label(&self, example: u64) -> i32 {
        let class = |entity: usize, number: u32| {
            let data = &self.tables.data[entity];
            data.class_of_rank(data.rank(u64::from(number))) as i32
        };
        match self.tables.task {
            RelationalTask::NextOrder => {
                let order = self.next_order(example) as u32;
                class(PRODUCT, self.events[0].product(&self.tables.data[PRODUCT], order))
            }
            RelationalTask::ReviewClass => self
                .review(example)
                .map_or(-1, |review| class(0, self.events[1].customer(&self.tables.data[0], review as u32))),
        }
    }

    fn split(&self, example: u64) -> usize {
        match self.tables.task {
            RelationalTask::NextOrder => self.tables.data[ORDER].split(self.next_order(example)),
            RelationalTask::ReviewClass => {
                self.review(example).map_or(3, |review| self.tables.data[REVIEW].split(review))
            }
        }
    }

    fn time(&self, node: u64) -> i64 {
        let node_type = self.types().node_type(node as u32);
        if node_type <= PRODUCT {
            return FIRST_DAY;
        }
        self.day(node_type, node - u64::from(self.types().range(node_type).start))
    }

    fn num_blocks(&self) -> usize {
        self.blocks.len()
    }

    fn buffers(&self) -> TypedBuffers {
        TypedBuffers::new(2, self.tables.max_edges())
    }

    fn rows(&self, block: usize, buffers: &TypedBuffers) -> TypedRows {
        let (node_type, _, rows) = self.blocks.locate(block);
        let (types, data, len) = (self.types(), &self.tables.data, rows.len());
        let to_first = types.range(node_type).start;
        let mut parts = Vec::new();
        for (number, &(_, event, entity)) in KEYS.iter().enumerate() {
            let (events, of_customers) = (&self.events[event - 2], entity != PRODUCT);
            if node_type == entity {
                let from_first = types.range(event).start;
                let of_type = buffers.rows(to_first + rows.start, len, |edges| {
                    for node in rows.clone() {
                        let mut push = |from: u32| edges.push(to_first + node, from_first + from);
                        if of_customers {
                            events.of_customer(&data[entity], node).for_each(&mut push);
                        } else {
                            events.of_product(&data[entity], node).for_each(&mut push);
                        }
                    }
                });
                parts.push((number as u16, of_type));
            } else if node_type == event {
                let from_first = types.range(entity).start;
                let of_type = buffers.rows(to_first + rows.start, len, |edges| {
                    for node in rows.clone() {
                        let of = if of_customers { Events::customer } else { Events::product };
                        edges.push(to_first + node, from_first + of(events, &data[entity], node));
                    }
                });
                parts.push(((KEYS.len() + number) as u16, of_type));
            }
        }
        buffers.merge(len, &parts)
    }
}
