"""Names that were read off profiles of torch 2.11 on an H200."""

import pytest

from cudal1_ci.source.kernel_names import bare_name, brief


@pytest.mark.parametrize(
    ("launched", "name"),
    [
        ("add_kernel", "add_kernel"),
        ("plain(float*)", "plain"),
        ("void fused_relu<float>(float const*, float*, int)", "fused_relu"),
        ("void (anonymous namespace)::fused_relu<float, (int)4>(float const*)", "fused_relu"),
        ("void mine::fused_relu<mine::Tile<4, 2> >(float*)", "fused_relu"),
        ("void fused_relu<Tile<4, 2>, at::native::(anonymous", "fused_relu"),
        ("Memcpy DtoD (Device -> Device)", "DtoD"),
    ],
)
def test_the_name_of_a_launched_kernel(launched, name):
    assert bare_name(launched) == name


ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, "
LAMBDA = (
    "{lambda()#1}::operator()() const::{lambda(float)#1}, std::array<char*, 2ul> >(int, at::nati"
)


@pytest.mark.parametrize(
    ("launched", "name"),
    [
        (
            f"{ELEMENTWISE}at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)",
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            f"{ELEMENTWISE}at::native::BinaryFunctor<float, float, float, "
            "at::native::binary_internal::MulFunctor<float> >, std::array<char*, 3ul> >(int)",
            "vectorized_elementwise_kernel<MulFunctor>",
        ),
        (
            f"{ELEMENTWISE}at::native::(anonymous namespace)::launch_clamp_scalar("
            f"at::TensorIteratorBase&, c10::Scalar)::{LAMBDA}",
            "vectorized_elementwise_kernel<launch_clamp_scalar>",
        ),
        (
            "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl_nocast<"
            f"at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{LAMBDA}",
            "elementwise_kernel<direct_copy_kernel_cuda>",
        ),
        (
            "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, "
            "at::native::func_wrapper_t<float, at::native::sum_functor<float, float, flo",
            "reduce_kernel<sum_functor>",
        ),
        (
            "void (anonymous namespace)::softmax_warp_forward<float, float, float, 9, false, "
            "false>(float*, float const*, int, int, int, bool const*, int, bool)",
            "softmax_warp_forward",
        ),
        (
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n_tilesize32x32x8_stage3_warpsize1x2x1_ffma_"
            "aligna4_alignc4_execute_kernel__5x_cublas",
            "sm80_xmma_gemm_f32f32_f32f32_f32_tn_n",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>("
            "cutlass_80_simt_sgemm_64x64_8x5_tn_align1::Params)",
            "Kernel2<cutlass_80_simt_sgemm_64x64_8x5_tn_align1>",
        ),
        ("void mine::fused_relu<float>(float const*, float*, int)", "fused_relu"),
        ("fused_relu_kernel", "fused_relu_kernel"),
        ("aten::mm", "aten::mm"),
        ("Memcpy DtoD (Device -> Device)", "Memcpy DtoD (Device -> Device)"),
        ("x" * 500, "x" * 80),
    ],
)
def test_the_brief_name_says_what_is_computed(launched, name):
    assert brief(launched) == name
