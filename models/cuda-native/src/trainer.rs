//! The operator: construction, checks of its inputs, and the order of its work.

use std::fmt;
use std::sync::Arc;

use morphgl_cuda::{Buffer, CudaBatch, CudaBlock, CudaGivenRows, CudaRows, Device, Floats, Pinned, Precision, Stream};
use morphgl_graph_store::Dataset;
use morphgl_model_core::{
    Attention, BlockSizes, GivenLengths, Limits, ModelKind, ModelSpec, Normalization, Objective, ParameterSpec, Steps,
    TargetLengths, TrainingSpec, blocks_chain, check_first_layer, check_given, check_model, check_tensors, infer_bytes,
    initial_parameters, nothing_accumulated, optimizer_state, read_optimizer_state, refuse_edges, refuse_relations,
    refuse_submitted, refused_importance, wrong_targets,
};
use morphgl_registry::{
    BatchId, Error, GatherRows, Gradients, Handle, HostBatch, MiniBatch, ModelState, NamedTensor, Result, Score,
    SingleProcess, Targets, Training, TrainingContext,
};
use serde::Deserialize;
use serde_json::Value;

use crate::KEY;
use crate::edges::{Edges, InputRows, zero};
use crate::forward::{Layer, Mode, Pass};
use crate::given::Given;
use crate::gpu::{Gpu, MaskNodes, Words};
use crate::groups::{Grouping, Groups, Ungrouped};
use crate::infer::{LIMITS, first_layer, infer};
use crate::input::Input;
use crate::inputs::{Computed, TypedInputs};
use crate::layout::{Layout, Model};
use crate::loss::{Bounds, Loss, outcome, score};
use crate::state::{State, upload};
use crate::transpose::Block;

/// Training on a CUDA device, `Training_CUDA_Native`.
pub struct CudaNative {
    spec: TrainingSpec,
    dataset: Arc<Dataset>,
    seed: u64,
    threads: usize,
    layout: Layout,
    /// Whether a mini-batch was accumulated since the last step.
    accumulated: bool,
    last: Option<BatchId>,
    state: State,
    /// Of a reordered graph, where the model has dropout: the numbers that masks are keyed by.
    draw_keys: Option<Buffer<u32>>,
    loss: Loss,
    /// The same loss of outputs in host memory.
    objective: Objective,
    gpu: Gpu,
    /// Groups the blocks of a typed model, and nodes by their type.
    grouping: Option<Grouping>,
    inputs: Option<TypedInputs>,
}

/// Options of the operator.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Options {
    gemm: GemmChoice,
    tf32: bool,
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize)]
enum GemmChoice {
    #[default]
    #[serde(rename = "cublas")]
    Cublas,
    #[serde(rename = "3xtf32")]
    Split,
}

impl Options {
    fn parse(value: &Value) -> Result<Self> {
        match value {
            Value::Null => Ok(Self::default()),
            some => Self::deserialize(some).map_err(|e| Error::setting(KEY, format!("options: {e}"))),
        }
    }

    /// The precision of cuBLAS; `None` for the kernel of ours.
    ///
    /// # Errors
    ///
    /// Both options.
    fn precision(&self) -> Result<Option<Precision>> {
        match (self.gemm, self.tf32) {
            (GemmChoice::Split, true) => {
                Err(Error::setting(KEY, "options: gemm 3xtf32 has the accuracy of f32; leave tf32 out, or gemm"))
            }
            (GemmChoice::Split, false) => Ok(None),
            (GemmChoice::Cublas, tf32) => Ok(Some(if tf32 { Precision::Tf32 } else { Precision::F32 })),
        }
    }
}

impl fmt::Debug for CudaNative {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, layers) = (self.spec.model.kind, self.spec.model.layers);
        write!(f, "CudaNative({layers}-layer {kind} on {:?})", self.gpu.stream.device())
    }
}

/// Refuses models that are not trained here, and what typed models do not do, by name.
fn refuse_models(model: &ModelSpec) -> Result<()> {
    let what = match model.kind {
        kind @ (ModelKind::Hgt | ModelKind::Embedding) => format!("the model {kind}"),
        ModelKind::Rgat if model.attention == Attention::Gatv2 => "attention gatv2 of the model rgat".to_string(),
        _ if model.diagonal_blocks > 0 => "diagonal_blocks".to_string(),
        _ => return Ok(()),
    };
    Err(Error::setting(what, "it is not trained on CUDA devices; train on the CPU, or leave --training out"))
}

impl CudaNative {
    /// Builds the operator with initial parameters. Option `gemm` (`cublas`): `3xtf32` for a kernel of ours in f32 on tensor cores. Option
    /// `tf32` (false): GEMM inputs are rounded to TF32 for tensor
    /// cores; losses then differ from the CPU's by more than 1e-5.
    ///
    /// # Errors
    ///
    /// An invalid spec or one that does not fit the dataset, a place that is no usable CUDA device, or an invalid option.
    pub fn new(context: &TrainingContext) -> Result<Self> {
        let spec = TrainingSpec::from_json(&context.spec)?;
        refuse_submitted(&spec.model)?;
        refuse_edges(&spec.model, "train on the CPU, or leave --training out")?;
        refuse_models(&spec.model)?;
        refuse_relations(&spec.model, "train on the CPU, or leave --training out")?;
        check_model(context, &spec)?;
        let gpu = Gpu::new(&Device::open(&context.place, &KEY)?, Options::parse(&context.options)?.precision()?)?;
        let draw_keys = context.dataset.topology.draw_keys().filter(|_| spec.model.has_dropout());
        let draw_keys = draw_keys.map(|keys| Buffer::of(&gpu.stream, keys)).transpose()?;
        let layout = Layout::new(&spec.model);
        if u32::try_from(layout.len).is_err() {
            let what = format!("the model has {} parameters, a device takes less than 2^32", layout.len);
            return Err(Error::setting(KEY, format!("{what}; give node types features, or train on the CPU")));
        }
        let initial = layout.flat(&initial_parameters(&spec.model, context.seed));
        let mut trainer = Self {
            dataset: Arc::clone(&context.dataset),
            seed: context.seed,
            threads: 1,
            accumulated: false,
            last: None,
            draw_keys,
            state: State::new(&gpu.stream, &layout, &spec.optimizer, &initial)?,
            loss: Loss::new(&gpu.stream, &spec.model)?,
            objective: Objective::new(&spec.model)?,
            grouping: Grouping::new(&gpu, &spec.model, context.dataset.topology.types().map(|types| &**types))?,
            inputs: TypedInputs::new(&gpu.stream, &spec.model, &layout, &context.dataset)?,
            gpu,
            layout,
            spec,
        };
        trainer.set_threads(context.threads)?;
        Ok(trainer)
    }

    /// Peak bytes of scratch memory, besides mini-batches.
    pub fn workspace_bytes(&self) -> usize {
        self.gpu.arena_bytes() + self.grouping.as_ref().map_or(0, Grouping::arena_bytes)
    }

    /// Queues the passes over a mini-batch, which is then free after them.
    fn run<T>(
        &mut self,
        batch: &MiniBatch,
        pass: impl FnOnce(&mut Self, &CudaBatch) -> Result<Handle<T>>,
    ) -> Result<Handle<T>> {
        let batch = CudaBatch::on(self.gpu.stream.device(), batch)?;
        let handle = pass(self, batch)?;
        if let Some(grouping) = &mut self.grouping {
            grouping.done(&self.gpu.stream)?;
        }
        let end = self.gpu.stream.record(false)?;
        // SAFETY: the stream has waited for the mini-batch's `ready` event, and reads it before this event.
        unsafe { batch.done_after(end) };
        Ok(handle)
    }

    fn pass(&mut self, batch: &CudaBatch, trains: bool) -> Result<Handle<Score>> {
        let Self { spec, layout, state, gpu, grouping, inputs, seed, draw_keys, loss, .. } = self;
        let model = &spec.model;
        let training = Mode::Training {
            seed: *seed,
            id: batch.id,
            nodes: MaskNodes { nodes: &batch.input_nodes, keys: draw_keys.as_ref() },
        };
        let mode = if trains { training } else { Mode::Evaluation };
        let (stored, rows) = check_inputs(spec, batch)?;
        check_targets(spec, batch)?;
        let inputs = inputs.as_ref();
        gpu.begin()?;
        gpu.stream.wait(&batch.ready)?;
        let groups = groups((grouping, inputs.map(|_| rows)), &gpu.stream, (model, batch))?;
        let start = gpu.stream.record(true)?;
        let [values, gradients] = state.views();
        let mut pass = Pass { gpu, model: Model { spec: model, layout, values, gradients }, mode };

        let given = Given::of(batch, draw_keys.as_ref());
        let (input, computed) = input(&mut pass, inputs, &groups, (stored, rows))?;
        let mut layers = forward(&mut pass, (batch, &groups), given, input)?;
        let last = layers.last().expect("a model has a layer").output;
        let bounds = Bounds::of(model, batch);
        if !trains {
            score(&mut pass, (state, loss), batch, last.region, None)?;
            return outcome(pass.gpu, state, (batch.id, bounds, false), start);
        }
        let mut gradient = pass.gpu.take(last.region.len())?;
        score(&mut pass, (state, loss), batch, last.region, Some(gradient))?;
        let seeds = batch.num_seeds * model.num_classes;
        if gradient.len() > seeds {
            zero(pass.gpu, gradient.from(seeds, gradient.len() - seeds))?;
        }
        let batch_norm = model.normalization == Normalization::Batch;
        let norms: Vec<_> =
            layers.iter().filter(|_| batch_norm).filter_map(|l| Some((l.layer, l.normalized?))).collect();
        let mut of_given = None;
        let input_rows = computed.map(|computed| computed.rows());
        while let Some(layer) = layers.pop() {
            let computed = layers.last().map(|before| before.output.rows());
            // The last rows of the second layer's input are given.
            let given = given.filter(|given| layer.layer == 1 && given.has_inputs());
            let rows = computed.map(|rows| rows + given.map_or(0, |given| given.count()));
            let (own, read) = (computed.unwrap_or(0) * layer.shape.in_dim, layer.input.rows.words);
            let rows = rows.or(input_rows);
            if let Some(input_gradient) = pass.layer_backward(layer, gradient, rows)? {
                gradient = input_gradient;
            }
            if let (Some(given), Words::Region(read)) = (given, read) {
                let [read, of_rows] = [read, gradient].map(|all| all.from(own, all.len() - own));
                of_given = Some((given, read, of_rows));
                gradient = gradient.first(own);
            }
        }
        if let Some((given, output, gradient)) = of_given {
            pass.given_backward(given, output, gradient)?;
        }
        if let Some((inputs, computed)) = inputs.zip(computed) {
            pass.typed_inputs_backward(inputs, computed, gradient, state)?;
        }
        state.accumulate(pass.gpu, layout)?;
        for (layer, norm) in norms {
            norm.blend(pass.gpu, &state.gate, pass.running(layer))?;
        }
        outcome(pass.gpu, state, (batch.id, bounds, true), start)
    }

    /// Outputs of the seeds in evaluation mode.
    fn outputs_of(&mut self, batch: &CudaBatch) -> Result<Handle<Vec<f32>>> {
        let Self { spec, layout, state, gpu, grouping, inputs, draw_keys, .. } = self;
        let (model, inputs) = (&spec.model, inputs.as_ref());
        let (stored, rows) = check_inputs(spec, batch)?;
        gpu.begin()?;
        gpu.stream.wait(&batch.ready)?;
        let groups = groups((grouping, inputs.map(|_| rows)), &gpu.stream, (model, batch))?;
        let start = gpu.stream.record(true)?;
        let [values, gradients] = state.views();
        let mut pass = Pass { gpu, model: Model { spec: model, layout, values, gradients }, mode: Mode::Evaluation };
        let (input, _) = input(&mut pass, inputs, &groups, (stored, rows))?;
        let layers = forward(&mut pass, (batch, &groups), Given::of(batch, draw_keys.as_ref()), input)?;
        let last = layers.last().expect("a model has a layer").output.region;
        let outputs = last.first(batch.num_seeds * spec.model.num_classes);
        let mut host = Pinned::new(pass.gpu.stream.device(), outputs.len())?;
        pass.gpu.download(outputs, &mut host)?;
        let end = pass.gpu.stream.record(true)?;
        Ok(morphgl_cuda::pending(start, end, move || Ok(host.to_vec())))
    }
}

/// Forward of all layers.
fn forward<'a>(
    pass: &mut Pass<'_, 'a>,
    (batch, groups): (&'a CudaBatch, &'a [Groups<'a>]),
    given: Option<Given<'a>>,
    mut input: Input<'a>,
) -> Result<Vec<Layer<'a>>> {
    let model = pass.model.spec;
    let mut layers = Vec::with_capacity(model.layers);
    let mut groups = groups.iter();
    for layer in 0..model.layers {
        let (edges, rows) = match model.kind {
            ModelKind::Mlp | ModelKind::Embedding | ModelKind::Custom | ModelKind::Submitted(_) => {
                (None, batch.num_seeds)
            }
            kind if kind.is_typed() => {
                let block = block(&batch.blocks[layer]);
                let groups = groups.next().expect("a typed model's blocks are grouped");
                (Some(Edges::typed(pass.gpu, kind, block, groups)?), block.num_dst)
            }
            kind => {
                let block = block(&batch.blocks[layer]);
                let of_inputs = Floats::from(&batch.degrees);
                let degrees = match given.filter(|_| layer == 1 && Edges::reads_degrees(kind)) {
                    Some(given) => {
                        let computed = of_inputs.part(0..batch.blocks[0].num_dst);
                        Words::Region(given.degrees(pass.gpu, computed)?)
                    }
                    None => Words::Floats(of_inputs),
                };
                (Some(Edges::new(pass.gpu, model, block, degrees)?), block.num_dst)
            }
        };
        let done = pass.layer(layer, input, edges, rows)?;
        input = Input::of(match given.filter(|_| layer == 0) {
            Some(given) => pass.append(done.output, given)?,
            None => done.output,
        });
        layers.push(done);
    }
    Ok(layers)
}

/// The first layer's input: the mini-batch's features, or rows that are computed per node type.
fn input<'a>(
    pass: &mut Pass<'_, 'a>,
    inputs: Option<&'a TypedInputs>,
    groups: &'a [Groups<'a>],
    (stored, rows): (Option<InputRows<'a>>, usize),
) -> Result<(Input<'a>, Option<Computed<'a>>)> {
    match (inputs, stored, groups) {
        (Some(inputs), _, [.., nodes]) => {
            let computed = pass.typed_inputs(inputs, nodes)?;
            Ok((computed.input(), Some(computed)))
        }
        (_, Some(stored), _) => Ok((pass.features(stored, rows)?, None)),
        _ => unreachable!("a mini-batch has features, or its nodes are grouped"),
    }
}

/// Groups the blocks of a mini-batch for a typed model, and after these so many input nodes, if they are to be, by their type; `stream`
/// waits for that.
fn groups<'a>(
    (grouping, nodes): (&'a mut Option<Grouping>, Option<usize>),
    stream: &Stream,
    (model, batch): (&ModelSpec, &'a CudaBatch),
) -> Result<Vec<Groups<'a>>> {
    let Some(grouping) = grouping else { return Ok(Vec::new()) };
    let input_nodes = Words::Indices(&batch.input_nodes);
    let typed = |of: &'a CudaBlock| {
        let edge_types = of.edge_types.as_ref().map(Words::Types).expect("checked with the inputs");
        Ungrouped::Block { block: block(of), edge_types, nodes: input_nodes }
    };
    let blocks = batch.blocks.iter().filter(|_| model.kind.is_typed()).map(typed);
    let ungrouped: Vec<Ungrouped<'a>> = blocks.chain(nodes.map(|rows| Ungrouped::Nodes(input_nodes, rows))).collect();
    grouping.group((stream, &batch.ready), &ungrouped)
}

fn block(block: &CudaBlock) -> Block<'_> {
    Block {
        ends: None,
        num_dst: block.num_dst,
        num_src: block.num_src,
        num_edges: block.indices.len(),
        indptr: Words::Indices(&block.indptr),
        indices: Words::Indices(&block.indices),
        weights: block.weights.as_ref().map(|w| Words::Floats(w.into())),
        importance: block.importance,
    }
}

/// Checks the lengths of what the model's loss reads of the seeds.
fn check_targets(spec: &TrainingSpec, batch: &CudaBatch) -> Result<()> {
    let targets = TargetLengths {
        labels: batch.labels.len(),
        width: batch.targets.width,
        values: batch.targets.values.len(),
        pairs: batch.pairs.as_ref().map(|pairs| pairs.ends.len() / 2),
    };
    match wrong_targets(&spec.model, batch.num_seeds, targets) {
        Some(what) => Err(Error::setting(format!("{KEY}, {}", batch.id), what)),
        None => Ok(()),
    }
}

/// Features of a mini-batch, checked against the model as far as the host knows them, and the number of input rows. A model with inputs
/// per node type reads none.
fn check_inputs<'a>(spec: &TrainingSpec, batch: &'a CudaBatch) -> Result<(Option<InputRows<'a>>, usize)> {
    let wrong = |what: String| Err(Error::setting(format!("{KEY}, {}", batch.id), what));
    let (model, reads) = (&spec.model, spec.model.reads_graph());
    let blocks = if reads { &batch.blocks[..] } else { &[] };
    let by_type = !model.input_widths.is_empty();
    let features = batch.features.as_ref().filter(|_| !by_type);
    if features.is_none() && !by_type {
        return wrong("it has no features; let batching gather them, or transfer it first".to_string());
    }
    if let Some(features) = features.filter(|features| features.dim != model.in_dim) {
        return wrong(format!("its features have {} columns, the model reads {}", features.dim, model.in_dim));
    }
    if reads && blocks.len() != model.layers {
        let (blocks, layers) = (blocks.len(), model.layers);
        return wrong(format!("it has {blocks} blocks for {layers} layers; give one fanout per layer"));
    }
    let importance = blocks.iter().any(|block| block.importance);
    if let Some(refused) = refused_importance(model, importance) {
        return wrong(refused);
    }
    let kind = model.kind;
    let has_types = |block: &CudaBlock| block.edge_types.as_ref().map(Buffer::len) == Some(block.indices.len());
    if kind.is_typed() && !blocks.iter().all(has_types) {
        return wrong(format!("a {kind} reads the types of edges, and it has none; sample with --sampler typed"));
    }
    if (kind.is_typed() || by_type) && batch.given.as_ref().is_some_and(|given| !given.nodes.is_empty()) {
        let what = "a model with types is given no rows on a CUDA device; compute all of them";
        return wrong(what.to_string());
    }
    let rows = blocks.first().map_or(batch.num_seeds, |b| b.num_src);
    let stored = features.map(|features| match &features.rows {
        CudaRows::Packed(bytes) => {
            let num_rows = bytes.len() / (features.dim * features.dtype.size()).max(1);
            (InputRows::packed(Words::Bytes(bytes), features.dtype), num_rows)
        }
        CudaRows::OfNodes(table) => {
            let (words, ids) = (Words::Bytes(table), Some((Words::Indices(&batch.input_nodes), 0)));
            (InputRows { words, dtype: features.dtype, ids }, batch.input_nodes.len())
        }
    });
    let (stored, num_rows) = stored.unzip();
    if let Some(num_rows) = num_rows.filter(|num_rows| *num_rows < rows) {
        return wrong(format!("it has features of {num_rows} nodes, its blocks read {rows}"));
    }
    let nodes = batch.input_nodes.len();
    if (model.has_dropout() || kind.is_typed() || by_type) && nodes < rows {
        let reads = if kind.is_typed() || by_type { "a model with types" } else { "dropout" };
        return wrong(format!(
            "it has {nodes} input nodes, its blocks read {rows}, and {reads} needs all; batch it again"
        ));
    }
    if reads && batch.degrees.len() < rows {
        return wrong(format!("it has degrees of {} nodes, its blocks read {rows}", batch.degrees.len()));
    }
    let lengths = |given: &CudaGivenRows| GivenLengths {
        nodes: given.nodes.len(),
        degrees: given.degrees.len(),
        elements: given.rows.len(),
        inputs: given.inputs.iter().map(Buffer::len).collect(),
    };
    let num_given = check_given(&KEY, model, batch.id, batch.given.as_ref().map(lengths))?;
    let sizes = |b: &CudaBlock| BlockSizes { num_dst: b.num_dst, num_src: b.num_src, offsets: b.indptr.len() };
    if !blocks_chain(blocks.iter().map(sizes), num_given, batch.num_seeds) {
        return wrong("its blocks do not feed one another; batch it again".to_string());
    }
    Ok((stored, rows))
}

impl ModelState for CudaNative {
    fn gradients(&mut self) -> Result<Gradients> {
        let count = self.state.counters.to_vec(&self.gpu.stream)?[0];
        let values = self.state.gradients.to_vec(&self.gpu.stream)?;
        Ok(Gradients { tensors: self.layout.tensors(&self.layout.trainable, &values), count })
    }

    fn set_gradients(&mut self, gradients: &Gradients) -> Result<()> {
        let ordered = check_tensors("gradients", &self.layout.trainable, &gradients.tensors)?;
        upload(&self.gpu.stream, &self.layout.flat(ordered), &mut self.state.gradients)?;
        let mut counters = self.state.counters.to_vec(&self.gpu.stream)?;
        counters[0] = gradients.count;
        upload(&self.gpu.stream, &counters, &mut self.state.counters)?;
        self.accumulated = gradients.count > 0;
        Ok(())
    }

    fn parameters(&self) -> Result<Vec<NamedTensor>> {
        Ok(self.layout.tensors(&self.layout.specs, &self.state.parameters.to_vec(&self.gpu.stream)?))
    }

    fn set_parameters(&mut self, parameters: &[NamedTensor]) -> Result<()> {
        let ordered = check_tensors("parameters", &self.layout.specs, parameters)?;
        upload(&self.gpu.stream, &self.layout.flat(ordered), &mut self.state.parameters)
    }

    fn optimizer_state(&self) -> Result<Vec<NamedTensor>> {
        let (layout, stream, spec) = (&self.layout, &self.gpu.stream, &self.spec.optimizer);
        let counters = self.state.counters.to_vec(stream)?;
        let steps = Steps { done: counters[1], reductions: counters[2] as u32 };
        let [first, second] = &self.state.moments;
        let moments = [first.to_vec(stream)?, second.to_vec(stream)?];
        let of_each = |p: &ParameterSpec| moments.each_ref().map(|m| m.get(layout.range(&p.name)).unwrap_or_default());
        Ok(optimizer_state(spec, &layout.trainable, steps, layout.trainable.iter().map(of_each)))
    }

    fn set_optimizer_state(&mut self, state: &[NamedTensor]) -> Result<()> {
        let (layout, stream, spec) = (&self.layout, &self.gpu.stream, &self.spec.optimizer);
        let (steps, moments) = read_optimizer_state(spec, &layout.trainable, state)?;
        let mut counters = self.state.counters.to_vec(stream)?;
        counters[1..].copy_from_slice(&[steps.done, steps.reductions.into()]);
        upload(stream, &counters, &mut self.state.counters)?;
        for (i, buffer) in self.state.moments.iter_mut().enumerate().take(spec.moments().len()) {
            let mut values = vec![0.0; layout.len];
            for (p, moments) in layout.trainable.iter().zip(&moments) {
                values[layout.range(&p.name)].copy_from_slice(moments[i]);
            }
            upload(stream, &values, buffer)?;
        }
        Ok(())
    }
}

impl Training for CudaNative {
    fn set_threads(&mut self, threads: usize) -> Result<()> {
        if threads == 0 {
            return Err(Error::setting(KEY, "it is given 0 threads; give it at least one"));
        }
        self.threads = threads;
        Ok(())
    }

    fn accumulate(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        let id = batch.id();
        let handle = self.run(batch, |trainer, batch| trainer.pass(batch, true))?;
        (self.last, self.accumulated) = (Some(id), true);
        Ok(handle)
    }

    /// Steps run in stream order, and each outcome has a pinned buffer of its own.
    fn queue_depth(&self) -> usize {
        2
    }

    fn step(&mut self) -> Result<Handle<()>> {
        if !std::mem::take(&mut self.accumulated) {
            return Err(nothing_accumulated(KEY));
        }
        self.state.step(&self.gpu, &self.layout, &self.spec.optimizer, self.last)
    }

    fn score(&mut self, batch: &MiniBatch) -> Result<Handle<Score>> {
        self.run(batch, |trainer, batch| trainer.pass(batch, false))
    }

    fn outputs(&mut self, batch: &MiniBatch) -> Result<Handle<Vec<f32>>> {
        self.run(batch, Self::outputs_of)
    }

    fn score_logits(&mut self, logits: &[f32], targets: Targets<'_>, _width: usize) -> Result<Score> {
        let mut decoder = Vec::new();
        if self.spec.model.learns_pairs() {
            let of_decoder = |tensor: &NamedTensor| tensor.name.starts_with("decoder.");
            decoder.extend(self.parameters()?.into_iter().filter(of_decoder).flat_map(|tensor| tensor.values));
        }
        Ok(self.objective.score(logits, targets, &decoder))
    }

    /// What the weights multiply is left out, and a model with dropout of its features refused: beside a device an operator of the host
    /// computes given rows.
    fn first_layer(&mut self, batch: &HostBatch, rows: &mut Vec<f32>, _: &mut [Vec<f32>]) -> Option<Result<()>> {
        let (spec, [values, gradients]) = (&self.spec.model, self.state.views());
        if spec.kind.is_typed() || !spec.input_widths.is_empty() {
            return None;
        }
        let model = Model { spec, layout: &self.layout, values, gradients };
        Some(check_first_layer(KEY, spec, &self.dataset, batch).and_then(|(features, block)| {
            if let Some(refused) = refused_importance(spec, block.importance) {
                return Err(Error::setting(format!("{KEY}, {}", batch.id), refused));
            }
            if spec.input_dropout > 0.0 {
                let what = "it computes its first layer without input dropout; let an operator of the host do it";
                return Err(Error::setting(KEY, what));
            }
            first_layer(&mut self.gpu, model, features, batch, (self.threads, rows))
        }))
    }

    fn infer(&mut self, nodes: &[u32]) -> Result<Vec<f32>> {
        self.infer_together(nodes, &mut SingleProcess)
    }

    fn infer_together(&mut self, nodes: &[u32], peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        self.embed(nodes, self.spec.model.layers, peers)
    }

    fn embed(&mut self, nodes: &[u32], layers: usize, peers: &mut dyn GatherRows) -> Result<Vec<f32>> {
        let [values, gradients] = self.state.views();
        let model = Model { spec: &self.spec.model, layout: &self.layout, values, gradients };
        // A chunk takes a few times the memory of its rows; the rest is left to other operators.
        let bytes = (self.gpu.stream.device().free_bytes()? / 16).min(LIMITS.bytes as u64) as usize;
        let limits = Limits { bytes, ..LIMITS };
        let gpu = (&mut self.gpu, self.grouping.as_mut(), self.inputs.as_ref());
        infer(gpu, model, (&self.dataset, nodes, layers), (limits, self.threads), peers)
    }

    fn infer_bytes(&self) -> Option<u64> {
        Some(infer_bytes(&self.spec.model, &self.dataset, LIMITS))
    }
}
