"""libtenon.so from ctypes alone: what any language with a C interface can do.

usage: smoke.py <libtenon.so> <mlp.lua>
"""
import ctypes as c
import os
import shutil
import sys
import tempfile


class Error(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("code", c.c_int32), ("vendor_code", c.c_int64),
                ("vendor", c.c_char * 32), ("message", c.c_char * 464)]


LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_uint32, c.c_char_p, c.c_uint32, c.c_char_p)


class Options(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("log_level", c.c_uint32), ("log", LOG), ("log_user", c.c_void_p),
                ("plugin_directories", c.POINTER(c.c_char_p)), ("num_plugin_directories", c.c_uint32),
                ("threads", c.c_int32), ("helper", c.c_char_p), ("vocabulary", c.c_char_p)]


class Step(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("reserved", c.c_uint32), ("step", c.c_int64), ("tokens", c.c_int64),
                ("loss", c.c_double), ("grad_norm", c.c_double), ("lr", c.c_double), ("seconds", c.c_double)]


class DLTensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("device_type", c.c_int32), ("device_id", c.c_int32), ("ndim", c.c_int32),
                ("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16), ("shape", c.POINTER(c.c_int64)),
                ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64)]


class Managed(c.Structure):
    pass


Managed._fields_ = [("major", c.c_uint32), ("minor", c.c_uint32), ("manager_ctx", c.c_void_p),
                    ("deleter", c.CFUNCTYPE(None, c.POINTER(Managed))), ("flags", c.c_uint64), ("tensor", DLTensor)]

OK, DONE, STATE = 0, 2, -4


def main(library, recipe):
    lib = c.CDLL(library)
    lib.tenon_version.restype = c.c_char_p
    lib.tenon_run_tensor_name.restype = c.c_char_p
    lib.tenon_run_tensor_name.argtypes = [c.c_void_p, c.c_uint64]
    error = Error(struct_size=c.sizeof(Error))

    def call(name, *arguments, expect=OK):
        code = getattr(lib, name)(*arguments, c.byref(error))
        assert code == expect, f"{name}: {code}, {error.message.decode()}"

    lines = []
    options = Options(struct_size=c.sizeof(Options), log_level=2, log=LOG(lambda user, level, source, line, text: lines.append(text)))
    context, run = c.c_void_p(), c.c_void_p()
    call("tenon_open", c.byref(options), c.byref(context))
    overrides = (c.c_char_p * 2)(b"file=corpus.txt", b"steps=3")
    call("tenon_run_open", context, recipe.encode(), overrides, c.c_uint32(2), None, c.byref(run))
    losses = []
    step = Step(struct_size=c.sizeof(Step))
    for _ in range(3):
        call("tenon_run_step", run, c.byref(step))
        losses.append(step.loss)
    call("tenon_run_step", run, c.byref(step), expect=DONE)
    assert losses[2] < losses[0], losses

    name = lib.tenon_run_tensor_name(run, 0)
    view = c.POINTER(Managed)()
    call("tenon_run_export", run, name, c.byref(view))
    tensor = view.contents.tensor
    assert (tensor.code, tensor.bits, tensor.ndim) == (2, 32, 2), (tensor.code, tensor.bits, tensor.ndim)
    count = tensor.shape[0] * tensor.shape[1]
    values = (c.c_float * count).from_address(tensor.data)
    assert 0 < sum(v * v for v in values) < count, "the parameter's norm"
    mine, shape = (c.c_float * count)(), (c.c_int64 * 2)(tensor.shape[0], tensor.shape[1])
    whole = DLTensor(c.addressof(mine), 1, 0, 2, 2, 32, 1, shape, None, 0)
    call("tenon_run_read", run, name, c.byref(whole))
    assert list(mine) == list(values), "read whole"
    call("tenon_run_step", run, None, expect=STATE)
    assert name.decode() in error.message.decode(), error.message
    view.contents.deleter(view)

    call("tenon_run_save", run, b"out")
    call("tenon_run_close", run)
    call("tenon_close", context)
    assert os.path.exists("out/step-3/manifest.json")
    assert any(b"comm/local" in line for line in lines), lines
    print(f"tenon {lib.tenon_version().decode()}: {len(losses)} steps, {count} values of {name.decode()} read in place")


if __name__ == "__main__":
    library, recipe = (os.path.abspath(path) for path in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        shutil.copy(recipe, "mlp.lua")
        with open("corpus.txt", "w") as text:
            text.writelines(f"line {i}: the quick brown fox jumps over the lazy dog\n" for i in range(400))
        main(library, "mlp.lua")
        os.chdir("/")
