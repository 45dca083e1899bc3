//! Kernels by source file.

use morphgl_cuda::{Device, Kernel};
use morphgl_registry::Result;

macro_rules! kernels {
    ($($module:ident = $path:literal { $($kernel:ident),+ $(,)? })+) => {
        $(morphgl_cuda::module! { static $module = $path { $($kernel),+ } })+

        /// Every kernel, loaded once.
        #[derive(Debug, Clone)]
        pub(crate) struct Kernels {
            $($(pub(crate) $kernel: Kernel,)+)+
        }

        impl Kernels {
            /// Loads all kernels.
            pub(crate) fn new(device: &Device) -> Result<Self> {
                Ok(Self { $($($kernel: $module.kernel(device, stringify!($kernel))?,)+)+ })
            }
        }
    };
}

kernels! {
    SUMS = "kernels/sums.cu" {
        train_sum_f32, train_sum_f16, train_sum_bf16, train_sum_u8,
        train_sum_f32_single, train_sum_f16_single, train_sum_bf16_single, train_sum_u8_single,
        train_sum_sources, train_sum_sources_single, train_sum_groups, train_sum_groups_single,
        train_attend, train_attend_single, train_attend_backward, train_attend_backward_single,
        train_left_backward, train_right_backward,
        train_widen_f32, train_widen_f16, train_widen_bf16, train_widen_u8,
    }
    COEFFICIENTS = "kernels/coefficients.cu" { train_rescale, train_shares, train_convolution }
    GROUPS = "kernels/groups.cu" {
        train_group_keys, train_group_rows, train_group_entries, train_group_numbers, train_group_biases,
        train_table_gradients, train_type_scores, train_type_terms_rows, train_type_terms_sources, train_head_rows,
    }
    TRANSPOSE = "kernels/transpose.cu" {
        train_sort_count, train_sort_scan, train_sort_move, train_sort_starts, train_rows_of_edges,
    }
    ATTENTION = "kernels/attention.cu" {
        train_halves, train_scores, train_scores_second, train_softmax, train_coefficients_backward,
        train_softmax_backward, train_mean_heads, train_mean_heads_backward,
    }
    FINISH = "kernels/finish.cu" {
        train_finish, train_finish_backward, train_columns, train_columns_end, train_total, train_add, train_zero,
    }
    GEMM = "kernels/gemm.cu" {
        train_gemm, train_gemm_left_transposed, train_gemm_right_transposed, train_gemm_parts,
    }
    NORMS = "kernels/norms.cu" {
        train_unit, train_unit_backward, train_layer_norm, train_layer_norm_backward, train_centre, train_batch_norm,
        train_batch_norm_backward, train_batch_norm_running, train_blend,
    }
    OPTIMIZER = "kernels/optimizer.cu" {
        train_accumulate, train_squares, train_step_begin, train_adam, train_adam_rows, train_sgd, train_sgd_rows,
    }
    LOSS = "kernels/loss.cu" {
        train_loss, train_loss_smoothed, train_loss_values, train_loss_pairs, train_loss_ranks, train_score,
    }
    PAIRS = "kernels/pairs.cu" {
        train_pair_ends, train_pair_scores, train_pair_scores_hidden, train_pair_gradient, train_pair_products,
        train_pair_hidden_gradient, train_pair_hidden, train_every_second,
    }
}
