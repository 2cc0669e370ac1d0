/* The fast path of a prepared launch, 1 of 4: its objects, and how a call's arguments become the key of its entry.

   It does what the Python of kerntune/kernels/dispatch/codegen.py does if nothing is unusual and the call has an entry.
   Everything else, also errors while an entry is looked up, is left to the Python function, which gets the same call.
   Both use one table, so a key has the same items in the same order in both. native.py joins the four files. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stddef.h>
#include <string.h>

#define MAX_PARAMETERS 64
#define MAX_ITEMS (3 * MAX_PARAMETERS + 2)

enum { FALLBACK, TABLE, TUNER, FN, JIT, JITFUNCTION, RUN, PROFILER, ENTERING, LEAVING, RUNNING, RUNTIME, RUNTIME_THEN,
       COMPILATION, COMPILATION_THEN, CURRENT_DEVICE, CURRENT_STREAM, ALLOCATOR, KEYWORDS, NAMES, OBJECTS };
/* The numbers are those of native.OBJECTS above, source.ENTRY here, native.KINDS below. */
enum { KERNEL, CONFIG, CHOICE, SLOT, REST, FUNCTION, PACKED, LAUNCH, COOPERATIVE, PDL, ANNOTATIONS, TYPES, SCRATCH,
       ALIGN, DRIVER };
enum { ABSENT, NONE, BOOL, FLOAT, INT, I32, TENSOR, DESCRIPTOR, CONSTANT_BOOL, CONSTANT_INT, CONSTANT_STR,
       CONSTANT_NONE, CONSTANT_OBJECT };

typedef struct {
  int kind, source, exact, constexpr_;
} Parameter;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *o[OBJECTS], *tuner, *jit; /* the last two: attributes of the tuner and of the kernel, by name */
  int count, positional, single, staged, layouts, binary, one_device, order;
  Parameter parameters[MAX_PARAMETERS];
} Front;

static PyObject *s_run, *s_enabled, *s_data_ptr, *s_get_device, *s_shape, *s_stride, *s_base,
    *s_block_shape, *s_configs, *s_cache, *s_fn, *s_device_caches, *s_best_config, *s_get, *s_launch, *zero, *two;

/* A kernel's launch by the driver (DRIVER, packed by compat.driver_plan): its types are 'P' for an address, 'b h i l'
   for integers of 1 to 8 bytes, 'f d' for floats, '-' for what the binary doesn't take. */
typedef struct {
  unsigned long long function;
  unsigned int threads, shared;
  char types[MAX_PARAMETERS];
} Plan;

/* cuLaunchKernel; NULL where there is none. */
typedef int (*LaunchKernel)(void *function, unsigned x, unsigned y, unsigned z, unsigned threads, unsigned one,
                            unsigned another, unsigned shared, void *stream, void **parameters, void **extra);
static LaunchKernel launch_kernel = NULL;

/* A call under way. Addresses are by parameter, and count where the parameter is a tensor of a binary. */
typedef struct {
  PyObject *items[MAX_ITEMS];
  int n;
  unsigned long long addresses[MAX_PARAMETERS], together;
  int pointers;
  PyObject *device;
  long device_number;
} Call;

static void forget(Call *c) {
  for (int i = 0; i < c->n; i++) Py_CLEAR(c->items[i]);
  c->n = 0;
  Py_CLEAR(c->device);
}

static int passes_address(Front *self, int i) { return self->binary && self->parameters[i].kind == TENSOR; }

static int item(Call *c, PyObject *owned) {
  if (owned == NULL) return 0;
  c->items[c->n++] = owned;
  return 1;
}

/* Whether Triton's knobs are set as they were when the form was written; usually none is. */
static int as_set(PyObject *now, PyObject *then) {
  if (PyDict_GET_SIZE(now) != PyDict_GET_SIZE(then)) return 0;
  return PyDict_GET_SIZE(now) == 0 || PyObject_RichCompareBool(now, then, Py_EQ) == 1;
}

static int usual(Front *self) {
  PyObject *own = ((PyTypeObject *)self->o[JITFUNCTION])->tp_dict;
  return PyDict_GetItemWithError(own, s_run) == self->o[RUN] && PyDict_GetItemWithError(self->o[PROFILER], s_enabled) == Py_False &&
         PyList_GET_SIZE(self->o[ENTERING]) == 0 && PyList_GET_SIZE(self->o[LEAVING]) == 0 &&
         PyList_GET_SIZE(self->o[RUNNING]) == 0 && as_set(self->o[RUNTIME], self->o[RUNTIME_THEN]) &&
         as_set(self->o[COMPILATION], self->o[COMPILATION_THEN]);
}

/* The call's arguments with keywords in the form's order; NULL if it gives others. Names are interned strings. */
static PyObject *const *in_order(Front *self, PyObject *const *args, PyObject *given, PyObject **ordered) {
  Py_ssize_t n = PyTuple_GET_SIZE(self->o[KEYWORDS]), first = 1 + self->positional;
  if ((given == NULL ? 0 : PyTuple_GET_SIZE(given)) != n) return NULL;
  if (n == 0) return args;
  for (Py_ssize_t i = 0; i < first; i++) ordered[i] = args[i];
  for (Py_ssize_t i = 0; i < n; i++) {
    Py_ssize_t j = 0;
    while (j < n && PyTuple_GET_ITEM(given, j) != PyTuple_GET_ITEM(self->o[KEYWORDS], i)) j++;
    if (j == n) return NULL;
    ordered[first + i] = args[first + j];
  }
  return ordered;
}

/* The C functions of one tensor type, cached while the type is unchanged, so that they are called without a look-up.
   NULL where the type has others, which are looked up each time. */
enum property { IS_CUDA, DTYPE, REQUIRES_GRAD, PROPERTIES };
static struct {
  PyTypeObject *type;
  unsigned version;
  PyMethodDef *data_ptr;
  PyGetSetDef *properties[PROPERTIES];
} type_cache;

static PyObject *s_properties[PROPERTIES];

static void cache_type(PyTypeObject *type) {
  if (type == type_cache.type && type_cache.version != 0 && type_cache.version == type->tp_version_tag) return;
  PyObject *method = _PyType_Lookup(type, s_data_ptr);
  int plain = method != NULL && Py_IS_TYPE(method, &PyMethodDescr_Type);
  PyMethodDef *definition = plain ? ((PyMethodDescrObject *)method)->d_method : NULL;
  type_cache.data_ptr = definition != NULL && definition->ml_flags == METH_NOARGS ? definition : NULL;
  for (int i = 0; i < PROPERTIES; i++) {
    PyObject *found = _PyType_Lookup(type, s_properties[i]);
    plain = found != NULL && Py_IS_TYPE(found, &PyGetSetDescr_Type);
    type_cache.properties[i] = plain ? ((PyGetSetDescrObject *)found)->d_getset : NULL;
  }
  type_cache.type = type;
  type_cache.version = type->tp_version_tag;
}

static PyObject *data_ptr_of(PyObject *tensor) {
  cache_type(Py_TYPE(tensor));
  return type_cache.data_ptr != NULL ? type_cache.data_ptr->ml_meth(tensor, NULL) : PyObject_CallMethodNoArgs(tensor, s_data_ptr);
}

static PyObject *property_of(PyObject *tensor, int i) {
  cache_type(Py_TYPE(tensor));
  PyGetSetDef *own = type_cache.properties[i];
  return own != NULL && own->get != NULL ? own->get(tensor, own->closure) : PyObject_GetAttr(tensor, s_properties[i]);
}

/* A tensor as DLPack's C exchange describes it (DLTensor of dlpack.h, ABI 1), in one call and without objects. */
typedef struct {
  void *data;
  struct { int32_t type, id; } device;
  int32_t ndim;
  struct { uint8_t code, bits; uint16_t lanes; } dtype;
  int64_t *shape, *strides;
  uint64_t byte_offset;
} TensorInfo;

/* The table that types have as __dlpack_c_exchange_api__ (DLPackExchangeAPI of dlpack.h, ABI 1). */
typedef struct Exchange {
  uint32_t major, minor;
  struct Exchange *older;
  void *allocate, *take, *give;
  int (*describe)(PyObject *tensor, TensorInfo *to); /* data is the result of data_ptr(); returns 0, or -1 with an error */
  int (*stream)(int32_t device_type, int32_t device, void **stream);
} Exchange;

#define ABI 1
#define CODES 32
#define SIZES 65
#define EXACT_TYPES 2

/* The exchange, the tensor types that it is used for (no subclasses: they may override attributes), the device type;
   element types by DLPack's code and bits, NULL where several share them. */
static struct {
  Exchange *api;
  PyTypeObject *types[EXACT_TYPES];
  int device_type;
  PyObject *dtypes[CODES][SIZES];
} exchange;

static int described(PyObject *tensor, TensorInfo *to) {
  if (exchange.api == NULL || (Py_TYPE(tensor) != exchange.types[0] && Py_TYPE(tensor) != exchange.types[1])) return 0;
  if (exchange.api->describe(tensor, to) == 0) return 1;
  PyErr_Clear();
  return 0;
}

/* The place of a described tensor's element type; NULL for one without a place. */
static PyObject **dtype_place(TensorInfo *info) {
  int fits = info->dtype.lanes == 1 && info->dtype.code < CODES && info->dtype.bits < SIZES;
  return fits ? &exchange.dtypes[info->dtype.code][info->dtype.bits] : NULL;
}

/* The element type, a new reference. */
static PyObject *dtype_of(PyObject *tensor, TensorInfo *info) {
  PyObject **place = info != NULL ? dtype_place(info) : NULL, *found = place != NULL ? *place : NULL;
  return found != NULL ? Py_NewRef(found) : property_of(tensor, DTYPE);
}

static int info_is_here(Front *self, Call *c, TensorInfo *info) {
  return info->device.type == exchange.device_type && (self->one_device || info->device.id == c->device_number);
}

static int is_here(Front *self, Call *c, PyObject *tensor) {
  PyObject *answer = self->one_device ? property_of(tensor, IS_CUDA) : PyObject_CallMethodNoArgs(tensor, s_get_device);
  if (answer == NULL) return 0;
  int here = self->one_device ? answer == Py_True : PyLong_Check(answer) && PyLong_AsLong(answer) == c->device_number;
  Py_DECREF(answer);
  return here;
}

/* The address in a method's or an allocator's result. */
static int as_address(PyObject *owned, unsigned long long *to) {
  int fine = owned != NULL && PyLong_Check(owned);
  if (fine) *to = PyLong_AsUnsignedLongLong(owned);
  Py_XDECREF(owned);
  return fine && !(*to == (unsigned long long)-1 && PyErr_Occurred());
}

static int tensor(Front *self, Call *c, PyObject *value, int i) {
  TensorInfo info;
  int has_info = self->binary && described(value, &info);
  if (has_info) {
    c->addresses[i] = (unsigned long long)(size_t)info.data + info.byte_offset;
    if (!info_is_here(self, c, &info)) return 0;
  } else {
    if (self->binary && !as_address(data_ptr_of(value), &c->addresses[i])) return 0;
    if (!is_here(self, c, value)) return 0;
  }
  if (self->binary) {
    c->pointers++;
    c->together |= c->addresses[i];
  }
  if (!item(c, dtype_of(value, has_info ? &info : NULL))) return 0;
  if (!self->layouts) return 1;
  return item(c, PyObject_GetAttr(value, s_shape)) && item(c, PyObject_CallMethodNoArgs(value, s_stride));
}

static int descriptor(Front *self, Call *c, PyObject *value) {
  PyObject *base = PyObject_GetAttr(value, s_base);
  if (base == NULL) return 0;
  TensorInfo info;
  int has_info = self->binary && described(base, &info);
  int fine = (has_info ? info_is_here(self, c, &info) : is_here(self, c, base)) &&
             item(c, Py_NewRef((PyObject *)Py_TYPE(value)));
  if (fine && self->binary) {
    PyObject *block = NULL;
    fine = item(c, dtype_of(base, has_info ? &info : NULL)) && (block = PyObject_GetAttr(value, s_block_shape)) != NULL &&
           item(c, PySequence_Tuple(block));
    Py_XDECREF(block);
  }
  Py_DECREF(base);
  return fine;
}

static int integer(Call *c, PyObject *value) {
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow || number < INT32_MIN || number > INT32_MAX) return 0;
  return item(c, Py_NewRef(number == 1 ? two : (number & 15) == 0 ? Py_True : Py_False));
}

static int argument(Front *self, Call *c, int i, PyObject *value) {
  PyTypeObject *type = Py_TYPE(value);
  Parameter *p = &self->parameters[i];
  switch (p->kind) {
  case TENSOR: return tensor(self, c, value, i);
  case DESCRIPTOR: return descriptor(self, c, value);
  case I32: return type == &PyLong_Type && integer(c, value);
  case NONE: return value == Py_None;
  case CONSTANT_OBJECT: return item(c, Py_NewRef((PyObject *)type)) && item(c, Py_NewRef(value));
  case CONSTANT_NONE: return value == Py_None && item(c, Py_NewRef(value));
  case BOOL: if (type != &PyBool_Type) return 0; break;
  case FLOAT: if (type != &PyFloat_Type) return 0; break;
  case INT: if (type != &PyLong_Type) return 0; break;
  case CONSTANT_BOOL: return type == &PyBool_Type && item(c, Py_NewRef(value));
  case CONSTANT_INT: return type == &PyLong_Type && item(c, Py_NewRef(value));
  case CONSTANT_STR: return type == &PyUnicode_Type && item(c, Py_NewRef(value));
  default: return 0;
  }
  return p->exact ? item(c, Py_NewRef(value)) : 1;
}

static int alignment(Front *self, Call *c) {
  if (c->pointers == 0) return 1;
  if ((c->together & 15) == 0) return item(c, Py_NewRef(zero));
  PyObject *each = PyTuple_New(c->pointers);
  if (each == NULL) return 0;
  for (int i = 0, n = 0; i < self->count; i++)
    if (passes_address(self, i))
      PyTuple_SET_ITEM(each, n++, Py_NewRef((c->addresses[i] & 15) == 0 ? Py_True : Py_False));
  return item(c, each);
}

/* The entry of a call (a new reference), NULL if there is none. */
static PyObject *look_up(Front *self, Call *c, PyObject *const *args) {
  if (self->one_device) {
    c->device = Py_NewRef(zero);
  } else {
    c->device = PyObject_CallNoArgs(self->o[CURRENT_DEVICE]);
    if (c->device == NULL || !PyLong_Check(c->device) || !item(c, Py_NewRef(c->device))) return NULL;
    c->device_number = PyLong_AsLong(c->device);
  }
  for (int i = 0; i < self->count; i++) {
    Parameter *p = &self->parameters[i];
    if (p->kind != ABSENT && !argument(self, c, i, args[p->source])) return NULL;
  }
  if (!alignment(self, c)) return NULL;
  PyObject *key = PyTuple_New(c->n);
  if (key == NULL) return NULL;
  for (int i = 0; i < c->n; i++) PyTuple_SET_ITEM(key, i, c->items[i]);
  c->n = 0;
  PyObject *entry = PyDict_GetItemWithError(self->o[TABLE], key);
  Py_XINCREF(entry);
  Py_DECREF(key);
  return entry;
}
