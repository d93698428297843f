// Makes the table of one instruction set; included by isa_*.cpp only.
#pragma once

#include "attention_loops.h"
#include "elementwise_loops.h"
#include "gemm_loops.h"
#include "loops.h"
#include "row_loops.h"

namespace tenon::kernels::cpu::TENON_ISA {
namespace {

template <class T>
constexpr Loops<T> make_loops() {
  using R = Rows<T>;
  return {.layernorm = R::layernorm,
          .layernorm_dgrad = R::layernorm_dgrad,
          .layernorm_wgrad = R::layernorm_wgrad,
          .rmsnorm = R::rmsnorm,
          .rmsnorm_dgrad = R::rmsnorm_dgrad,
          .rmsnorm_wgrad = R::rmsnorm_wgrad,
          .bias_add = R::bias_add,
          .sum_rows = R::sum_rows,
          .combine = R::combine,
          .add = R::add,
          .sqnorm = R::sqnorm,
          .rope = R::rope,
          .dropout = R::dropout,
          .logsumexp = R::logsumexp,
          .softmax = R::softmax,
          .attention = Attention<T>::forward,
          .attention_dgrad = Attention<T>::backward,
          .pack_rows = Gemm<T>::pack_rows,
          .pack_columns = Gemm<T>::pack_columns,
          .product = Gemm<T>::product,
          .elementwise = kElementwise<T>,
          .num_elementwise = sizeof(kElementwise<T>) / sizeof(ElementLoop<T>)};
}

}  // namespace
}  // namespace tenon::kernels::cpu::TENON_ISA
