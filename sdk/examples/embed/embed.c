// Trains a recipe under a loop of its own, looks at a parameter in place, saves, and evaluates.
// usage: embed <recipe> <folder for checkpoints> [key=value ...]
#include <math.h>
#include <stdio.h>
#include <tenon/embed.h>

static void on_log(void* user, uint32_t level, const char* source, uint32_t line, const char* message) {
  (void)user;
  fprintf(stderr, "log %u %s:%u: %s\n", level, source, line, message);
}

static int failed(const char* what, const tenon_error* error) {
  fprintf(stderr, "%s: %s\n", what, error->message);
  return 1;
}

// Euclidean norm of a dense f32 tensor.
static double norm_of(const DLTensor* tensor) {
  const float* values = (const float*)((const char*)tensor->data + tensor->byte_offset);
  int64_t count = 1;
  for (int32_t d = 0; d < tensor->ndim; ++d) count *= tensor->shape[d];
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) sum += (double)values[i] * values[i];
  return sqrt(sum);
}

static tenon_code print_norm(tenon_run* run, const char* name, tenon_error* error) {
  DLManagedTensorVersioned* view = NULL;
  const tenon_code code = tenon_run_export(run, name, &view, error);
  if (code < 0) return code;
  const DLTensor* tensor = &view->dl_tensor;
  if (tensor->device.device_type != kDLCPU || tensor->dtype.code != kDLFloat || tensor->dtype.bits != 32) {
    printf("norm of %s: not f32 in this machine's memory\n", name);
  } else {
    printf("norm of %s: %.6f\n", name, norm_of(tensor));
  }
  view->deleter(view);  // steps are refused until then
  return code;
}

static tenon_code train(tenon_run* run, const char* folder, tenon_error* error) {
  tenon_info info = {.struct_size = sizeof info};
  tenon_code code = tenon_run_info(run, &info, error);
  if (code < 0) return code;
  printf("%lld parameters in %llu tensors, %d rank%s\n", (long long)info.num_parameters,
         (unsigned long long)info.num_param_tensors, info.world, info.world == 1 ? "" : "s");
  tenon_step_result step = {.struct_size = sizeof step};
  while ((code = tenon_run_step(run, &step, error)) == TENON_OK) {
    printf("step %lld of %lld: loss %.17g\n", (long long)step.step, (long long)info.total_steps, step.loss);
  }
  if (code != TENON_DONE) return code;
  if ((code = print_norm(run, tenon_run_tensor_name(run, 0), error)) < 0) return code;
  if ((code = tenon_run_save(run, folder, error)) < 0) return code;
  tenon_eval_result eval = {.struct_size = sizeof eval};
  if ((code = tenon_run_eval(run, &eval, error)) < 0) return code;
  printf("validation loss %.6f over %lld tokens\n", eval.loss, (long long)eval.tokens);
  return TENON_OK;
}

int main(int argc, char** argv) {
  if (argc < 3) return fprintf(stderr, "usage: embed <recipe> <folder for checkpoints> [key=value ...]\n"), 2;
  tenon_error error = {.struct_size = sizeof error};
  tenon_options options = {.struct_size = sizeof options, .log_level = TENON_LOG_WARN, .log = on_log};
  tenon_context* context = NULL;
  if (tenon_open(&options, &context, &error) < 0) return failed("tenon_open", &error);
  tenon_run* run = NULL;
  int status = 0;
  if (tenon_run_open(context, argv[1], (const char* const*)(argv + 3), (uint32_t)(argc - 3), NULL, &run,
                     &error) < 0) {
    status = failed("tenon_run_open", &error);
  } else if (train(run, argv[2], &error) < 0) {
    status = failed("train", &error);
  }
  if (tenon_run_close(run, &error) < 0) status = failed("tenon_run_close", &error);
  if (tenon_close(context, &error) < 0) status = failed("tenon_close", &error);
  return status;
}
