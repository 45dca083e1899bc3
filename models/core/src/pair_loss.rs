//! Losses of pairs: how much higher those that exist score than their negatives.

use morphgl_registry::{BatchPairs, Score};

use crate::logistic::{binary, sigmoid, softplus};
use crate::{Decoder, LossKind, ModelSpec, Task};

/// A loss of pairs and the decoder that scores them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PairLoss {
    decoder: Decoder,
    width: usize,
    kind: Kind,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Binary { positive_weight: f32 },
    Bpr,
    Margin { margin: f32 },
}

impl PairLoss {
    /// Of a model of links; `None` of others.
    pub(crate) fn of(spec: &ModelSpec) -> Option<Self> {
        if spec.task != Task::Link {
            return None;
        }
        let number = |name: &str| spec.loss_settings().number(name) as f32;
        let kind = match spec.loss {
            LossKind::Bpr => Kind::Bpr,
            LossKind::Margin => Kind::Margin { margin: number("margin") },
            _ => Kind::Binary { positive_weight: number("positive_weight") },
        };
        Some(Self { decoder: spec.decoder, width: spec.num_classes, kind })
    }

    pub(crate) fn score(&self, embeddings: &[f32], pairs: &BatchPairs, decoder: &[f32]) -> Score {
        let ends = (&pairs.ends[..], &pairs.edge_types[..]);
        self.slopes(&self.decoder.scores(embeddings, self.width, ends, decoder), pairs).0
    }

    pub(crate) fn gradient(
        &self,
        embeddings: &[f32],
        pairs: &BatchPairs,
        decoder: &[f32],
        gradient: &mut [f32],
        decoder_gradient: &mut [f32],
    ) -> Score {
        let (input, ends) = ((embeddings, self.width, 1), (&pairs.ends[..], &pairs.edge_types[..]));
        let forward = self.decoder.forward(input, ends, decoder);
        let (score, slopes) = self.slopes(&forward.outputs, pairs);
        // An operator refuses such a loss; its decoder keeps the gradients that it has.
        if !score.loss_sum.is_finite() {
            return score;
        }
        self.decoder.backward(input, (ends, &slopes), (decoder, &forward), gradient, decoder_gradient);
        score
    }

    /// The score, and the derivative of the summed loss by the score of each pair.
    fn slopes(&self, scores: &[f32], pairs: &BatchPairs) -> (Score, Vec<f32>) {
        let (count, positives) = (pairs.negatives_per_positive(), pairs.num_positives);
        let (mut score, mut slopes) = (Score::default(), vec![0.0; scores.len()]);
        // The loss of a positive before a negative by this much, and its derivative.
        let ranking: &dyn Fn(f64) -> (f64, f64) = match self.kind {
            Kind::Binary { positive_weight } => {
                for (i, (&x, slope)) in scores.iter().zip(&mut slopes).enumerate() {
                    let exists = i < positives;
                    let (loss, by_score) = binary(x, f32::from(u8::from(exists)), positive_weight);
                    *slope = by_score;
                    score += Score { loss_sum: loss, correct: u64::from((x > 0.0) == exists), count: 1 };
                }
                return (score, slopes);
            }
            Kind::Bpr => &|ahead| (softplus(-ahead), -sigmoid(-ahead)),
            Kind::Margin { margin } => &move |ahead| {
                let missing = f64::from(margin) - ahead;
                // A NaN stays one: it is a failure that the loss shows.
                if missing <= 0.0 { (0.0, 0.0) } else { (missing, -1.0) }
            },
        };
        for i in 0..positives {
            let (mut loss, mut correct) = (0.0, true);
            for negative in positives + i * count..positives + (i + 1) * count {
                let (of_this, by_ahead) = ranking(f64::from(scores[i]) - f64::from(scores[negative]));
                let by_ahead = (by_ahead / count as f64) as f32;
                loss += of_this / count as f64;
                slopes[i] += by_ahead;
                slopes[negative] -= by_ahead;
                correct &= scores[i] > scores[negative];
            }
            score += Score { loss_sum: loss, correct: u64::from(correct), count: 1 };
        }
        (score, slopes)
    }
}
