/* The quick part of a prepared launch: what kerntune/dispatch/source.py writes in Python, for the case that all is
   usual and the call's entry is there. Everything else, errors on the way to an entry included, is the Python function's,
   which gets the same call. Both share one table, so a key has the same items in the same order here and there. */
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
  PyObject *o[OBJECTS], *tuner, *jit; /* the last two: what the tuner and the kernel hold themselves, by name */
  int count, positional, single, staged, layouts, binary, one_device, order;
  Parameter parameters[MAX_PARAMETERS];
} Front;

static PyObject *s_run, *s_enabled, *s_data_ptr, *s_get_device, *s_shape, *s_stride, *s_base,
    *s_block_shape, *s_configs, *s_cache, *s_fn, *s_device_caches, *s_best_config, *s_get, *s_launch, *zero, *two;

/* What the driver is told of a kernel (DRIVER, packed by compat.driver_plan): its types are 'P' for an address, 'b h i l'
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

typedef struct {
  PyObject *items[MAX_ITEMS], *passed[MAX_PARAMETERS];
  int n;
  unsigned long long pointers[MAX_PARAMETERS], together;
  int pointer_count;
  PyObject *device;
  long device_number;
} Call;

static void forget(Call *c, int count) {
  for (int i = 0; i < c->n; i++) Py_CLEAR(c->items[i]);
  c->n = 0;
  for (int i = 0; i < count; i++) Py_CLEAR(c->passed[i]);
  Py_CLEAR(c->device);
}

static int item(Call *c, PyObject *owned) {
  if (owned == NULL) return 0;
  c->items[c->n++] = owned;
  return 1;
}

/* Whether Triton's knobs are set as they were when the form was written; mostly none is. */
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

/* How tensors of one type answer, found for as long as that type stays as it is: its own C functions are called without
   looking them up again. NULL where it has others; they are looked up each time then. */
enum property { IS_CUDA, DTYPE, PROPERTIES };
static struct {
  PyTypeObject *type;
  unsigned version;
  PyMethodDef *data_ptr;
  PyGetSetDef *properties[PROPERTIES];
} known;

static PyObject *s_properties[PROPERTIES];

static void know(PyTypeObject *type) {
  if (type == known.type && known.version != 0 && known.version == type->tp_version_tag) return;
  PyObject *method = _PyType_Lookup(type, s_data_ptr);
  int plain = method != NULL && Py_IS_TYPE(method, &PyMethodDescr_Type);
  PyMethodDef *definition = plain ? ((PyMethodDescrObject *)method)->d_method : NULL;
  known.data_ptr = definition != NULL && definition->ml_flags == METH_NOARGS ? definition : NULL;
  for (int i = 0; i < PROPERTIES; i++) {
    PyObject *found = _PyType_Lookup(type, s_properties[i]);
    plain = found != NULL && Py_IS_TYPE(found, &PyGetSetDescr_Type);
    known.properties[i] = plain ? ((PyGetSetDescrObject *)found)->d_getset : NULL;
  }
  known.type = type;
  known.version = type->tp_version_tag;
}

static PyObject *data_ptr_of(PyObject *tensor) {
  know(Py_TYPE(tensor));
  return known.data_ptr != NULL ? known.data_ptr->ml_meth(tensor, NULL) : PyObject_CallMethodNoArgs(tensor, s_data_ptr);
}

static PyObject *property_of(PyObject *tensor, int i) {
  know(Py_TYPE(tensor));
  PyGetSetDef *own = known.properties[i];
  return own != NULL && own->get != NULL ? own->get(tensor, own->closure) : PyObject_GetAttr(tensor, s_properties[i]);
}

static int is_here(Front *self, Call *c, PyObject *tensor) {
  PyObject *answer = self->one_device ? property_of(tensor, IS_CUDA) : PyObject_CallMethodNoArgs(tensor, s_get_device);
  if (answer == NULL) return 0;
  int here = self->one_device ? answer == Py_True : PyLong_Check(answer) && PyLong_AsLong(answer) == c->device_number;
  Py_DECREF(answer);
  return here;
}

static int tensor(Front *self, Call *c, PyObject *value, PyObject **passed) {
  if (self->binary) {
    PyObject *address = data_ptr_of(value);
    if (address == NULL) return 0;
    *passed = address;
    if (!PyLong_Check(address)) return 0;
    unsigned long long at = PyLong_AsUnsignedLongLong(address);
    if (at == (unsigned long long)-1 && PyErr_Occurred()) return 0;
    c->pointers[c->pointer_count++] = at;
    c->together |= at;
  }
  if (!is_here(self, c, value) || !item(c, property_of(value, DTYPE))) return 0;
  if (!self->layouts) return 1;
  return item(c, PyObject_GetAttr(value, s_shape)) && item(c, PyObject_CallMethodNoArgs(value, s_stride));
}

static int descriptor(Front *self, Call *c, PyObject *value) {
  PyObject *base = PyObject_GetAttr(value, s_base);
  if (base == NULL) return 0;
  int fine = is_here(self, c, base) && item(c, Py_NewRef((PyObject *)Py_TYPE(value)));
  if (fine && self->binary) {
    PyObject *block = NULL;
    fine = item(c, property_of(base, DTYPE)) && (block = PyObject_GetAttr(value, s_block_shape)) != NULL &&
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

static int argument(Front *self, Call *c, Parameter *p, PyObject *value, PyObject **passed) {
  PyTypeObject *type = Py_TYPE(value);
  switch (p->kind) {
  case TENSOR: return tensor(self, c, value, passed);
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

static int alignment(Call *c) {
  if (c->pointer_count == 0) return 1;
  if ((c->together & 15) == 0) return item(c, Py_NewRef(zero));
  PyObject *each = PyTuple_New(c->pointer_count);
  if (each == NULL) return 0;
  for (int i = 0; i < c->pointer_count; i++)
    PyTuple_SET_ITEM(each, i, Py_NewRef((c->pointers[i] & 15) == 0 ? Py_True : Py_False));
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
    if (p->kind != ABSENT && !argument(self, c, p, args[p->source], &c->passed[i])) return NULL;
  }
  if (!alignment(c)) return NULL;
  PyObject *key = PyTuple_New(c->n);
  if (key == NULL) return NULL;
  for (int i = 0; i < c->n; i++) PyTuple_SET_ITEM(key, i, c->items[i]);
  c->n = 0;
  PyObject *entry = PyDict_GetItemWithError(self->o[TABLE], key);
  Py_XINCREF(entry);
  Py_DECREF(key);
  return entry;
}

static int chosen(Front *self, PyObject *config, PyObject *choice) {
  if (PyDict_GetItemWithError(self->tuner, s_fn) != self->o[FN]) return 0;
  PyObject *found = PyDict_GetItemWithError(self->tuner, self->single ? s_configs : s_cache);
  if (found == NULL) return 0;
  if (!self->single) return PyDict_Check(found) && PyDict_GetItemWithError(found, choice) == config;
  return PyList_CheckExact(found) && PyList_GET_SIZE(found) == 1 && PyList_GET_ITEM(found, 0) == config;
}

static int note(Front *self, PyObject *config) {
  if (PyDict_GetItemWithError(self->tuner, s_best_config) == config) return 1;
  return !PyErr_Occurred() && PyObject_SetAttr(self->o[TUNER], s_best_config, config) == 0;
}

static int compiled(Front *self, Call *c, PyObject *slot, PyObject *kernel) {
  PyObject *caches = PyDict_GetItemWithError(self->jit, s_device_caches);
  PyObject *cache = caches != NULL && PyDict_Check(caches) ? PyDict_GetItemWithError(caches, c->device) : NULL;
  int whole = cache != NULL && PyTuple_Check(cache) && PyTuple_GET_SIZE(cache) > 0;
  PyObject *kernels = whole ? PyTuple_GET_ITEM(cache, 0) : NULL;
  return kernels != NULL && PyDict_Check(kernels) && PyDict_GetItemWithError(kernels, slot) == kernel;
}

/* The grid's extents, new references: it may be a function of the arguments and what the config sets. */
static int extents(Front *self, PyObject *grid, PyObject *rest, PyObject *const *args, PyObject **xyz) {
  Py_INCREF(grid);
  if (!PyTuple_CheckExact(grid) && PyCallable_Check(grid)) {
    PyObject *shown = PyDict_New(), *function = grid;
    int fine = shown != NULL;
    for (int i = 0; fine && i < self->count; i++) {
      Parameter *p = &self->parameters[i];
      if (p->kind != ABSENT) fine = PyDict_SetItem(shown, PyTuple_GET_ITEM(self->o[NAMES], i), args[p->source]) == 0;
    }
    fine = fine && PyDict_Update(shown, rest) == 0;
    grid = fine ? PyObject_CallOneArg(function, shown) : NULL;
    Py_DECREF(function);
    Py_XDECREF(shown);
    if (grid == NULL) return 0;
  }
  Py_ssize_t length = PyObject_Length(grid);
  int fine = length >= 0;
  for (int i = 0; fine && i < 3; i++) {
    xyz[i] = i == 0 || length > i ? PySequence_GetItem(grid, i) : PyLong_FromLong(1);
    fine = xyz[i] != NULL;
  }
  Py_DECREF(grid);
  return fine;
}

static PyObject *scratch(Front *self, PyObject *entry, PyObject **xyz, PyObject *stream) {
  PyObject *size = PyTuple_GET_ITEM(entry, SCRATCH);
  int some = PyObject_IsTrue(size);
  if (some <= 0) return some < 0 ? NULL : Py_NewRef(Py_None);
  PyObject *bytes = Py_NewRef(size);
  for (int i = 0; bytes != NULL && i < 3; i++) Py_SETREF(bytes, PyNumber_Multiply(bytes, xyz[i]));
  PyObject *allocate = bytes == NULL ? NULL : PyObject_CallMethodNoArgs(self->o[ALLOCATOR], s_get);
  PyObject *memory = allocate == NULL ? NULL
      : PyObject_CallFunctionObjArgs(allocate, bytes, PyTuple_GET_ITEM(entry, ALIGN), stream, NULL);
  Py_XDECREF(allocate);
  Py_XDECREF(bytes);
  return memory;
}

/* What the C launcher takes for a parameter, a new reference. */
static PyObject *handed(Front *self, Call *c, int i, PyObject *rest, PyObject *const *args) {
  Parameter *p = &self->parameters[i];
  if (p->constexpr_) return Py_NewRef(Py_None);
  if (p->kind != ABSENT) return Py_NewRef(c->passed[i] != NULL ? c->passed[i] : args[p->source]);
  PyObject *value = PyDict_GetItemWithError(rest, PyTuple_GET_ITEM(self->o[NAMES], i));
  if (value == NULL && !PyErr_Occurred()) PyErr_SetObject(PyExc_KeyError, PyTuple_GET_ITEM(self->o[NAMES], i));
  return Py_XNewRef(value);
}

static int into(PyObject *tuple, Py_ssize_t *at, PyObject *owned) {
  if (owned == NULL) return 0;
  PyTuple_SET_ITEM(tuple, (*at)++, owned);
  return 1;
}

/* Triton 3.6 takes scratch before metadata and the arguments one by one, 3.9 metadata first and them as one tuple. */
static PyObject *words(Front *self, Call *c, PyObject *entry, PyObject **xyz, PyObject *stream, PyObject *memory,
                       PyObject *const *args) {
  int apart = self->order == 36;
  PyObject *own = PyTuple_New((apart ? 13 : 0) + self->count), *all = apart ? own : PyTuple_New(16);
  Py_ssize_t at = 0, own_at = apart ? 13 : 0;
  int fine = own != NULL && all != NULL;
  PyObject *packed = PyTuple_GET_ITEM(entry, PACKED);
  PyObject *first[] = {xyz[0], xyz[1], xyz[2], stream, PyTuple_GET_ITEM(entry, FUNCTION),
                       PyTuple_GET_ITEM(entry, COOPERATIVE), PyTuple_GET_ITEM(entry, PDL)};
  PyObject *then36[] = {memory, Py_None, packed, Py_None, Py_None, Py_None};
  PyObject *then39[] = {packed, Py_None, Py_None, Py_None, memory, Py_None,
                        PyTuple_GET_ITEM(entry, ANNOTATIONS), PyTuple_GET_ITEM(entry, TYPES)};
  for (int i = 0; fine && i < 7; i++) fine = into(all, &at, Py_NewRef(first[i]));
  for (int i = 0; fine && i < (apart ? 6 : 8); i++) fine = into(all, &at, Py_NewRef(apart ? then36[i] : then39[i]));
  PyObject *rest = PyTuple_GET_ITEM(entry, REST);
  for (int i = 0; fine && i < self->count; i++) fine = into(own, &own_at, handed(self, c, i, rest, args));
  if (fine && !apart) {
    into(all, &at, own);
    return all;
  }
  if (fine) return all;
  if (!apart) Py_XDECREF(all);
  Py_XDECREF(own);
  return NULL;
}

/* An argument as the binary takes it; what Python can't convert is Triton's to complain of. */
static int pack(char type, PyObject *value, unsigned long long *to) {
  *to = 0;
  if (type == 'P' && value == Py_None) return 1;
  if (type == 'f' || type == 'd') {
    double wide = PyFloat_AsDouble(value);
    float narrow = (float)wide;
    if (type == 'd') memcpy(to, &wide, sizeof wide);
    else memcpy(to, &narrow, sizeof narrow);
  } else {
    if (!PyLong_Check(value)) return 0;
    *to = PyLong_AsUnsignedLongLongMask(value);
  }
  return !PyErr_Occurred();
}

static int address_of(PyObject *memory, unsigned long long *to) {
  PyObject *address = PyLong_Check(memory) ? Py_NewRef(memory) : PyObject_CallMethodNoArgs(memory, s_data_ptr);
  int fine = address != NULL && PyLong_Check(address);
  if (fine) *to = PyLong_AsUnsignedLongLong(address);
  Py_XDECREF(address);
  return fine && !PyErr_Occurred();
}

static int extent(PyObject *value, unsigned *to) {
  int overflow = 0;
  long long number = PyLong_CheckExact(value) ? PyLong_AsLongLongAndOverflow(value, &overflow) : -1;
  *to = (unsigned)number;
  return !overflow && number >= 0 && number <= INT32_MAX;
}

/* Launch through the driver itself; 0 (and no error) where Triton's launcher is to do it, or to say what is wrong. */
static int drive(Front *self, Call *c, PyObject *entry, PyObject **xyz, PyObject *stream, PyObject *memory,
                 PyObject *const *args) {
  PyObject *packed = PyTuple_GET_ITEM(entry, DRIVER), *rest = PyTuple_GET_ITEM(entry, REST);
  if (launch_kernel == NULL || !PyBytes_CheckExact(packed) || PyBytes_GET_SIZE(packed) != sizeof(Plan)) return 0;
  Plan plan;
  memcpy(&plan, PyBytes_AS_STRING(packed), sizeof plan);
  unsigned long long values[MAX_PARAMETERS + 2];
  void *parameters[MAX_PARAMETERS + 2];
  unsigned x, y, z;
  int n = 0, fine = PyLong_CheckExact(stream) && extent(xyz[0], &x) && extent(xyz[1], &y) && extent(xyz[2], &z);
  for (int i = 0; fine && i < self->count; i++) {
    Parameter *p = &self->parameters[i];
    if (plan.types[i] == '-') continue;
    PyObject *value = p->kind == ABSENT ? PyDict_GetItemWithError(rest, PyTuple_GET_ITEM(self->o[NAMES], i))
                      : c->passed[i] != NULL ? c->passed[i] : args[p->source];
    fine = value != NULL && pack(plan.types[i], value, &values[n]);
    n++;
  }
  if (fine) {
    values[n] = values[n + 1] = 0; /* memory for the kernel itself, and for profiling, of which there is none */
    fine = memory == Py_None || address_of(memory, &values[n]);
  }
  if (fine) {
    for (int i = 0; i < n + 2; i++) parameters[i] = &values[i];
    void *where = PyLong_AsVoidPtr(stream);
    int code = PyErr_Occurred() != NULL;
    Py_BEGIN_ALLOW_THREADS
    if (code == 0 && x != 0 && y != 0 && z != 0)
      code = launch_kernel((void *)(size_t)plan.function, x, y, z, plan.threads, 1, 1, plan.shared, where, parameters, NULL);
    Py_END_ALLOW_THREADS
    fine = code == 0;
  }
  PyErr_Clear();
  return fine;
}

static PyObject *launch(Front *self, Call *c, PyObject *entry, PyObject *const *args) {
  PyObject *xyz[3] = {NULL, NULL, NULL}, *stream = NULL, *memory = NULL, *all = NULL, *done = NULL, *kernel = NULL;
  if (note(self, PyTuple_GET_ITEM(entry, CONFIG)) &&
      extents(self, args[0], PyTuple_GET_ITEM(entry, REST), args, xyz) &&
      (stream = PyObject_CallOneArg(self->o[CURRENT_STREAM], c->device)) != NULL &&
      (memory = scratch(self, entry, xyz, stream)) != NULL &&
      (drive(self, c, entry, xyz, stream, memory, args) ||
       ((all = words(self, c, entry, xyz, stream, memory, args)) != NULL &&
        (done = PyObject_Call(PyTuple_GET_ITEM(entry, LAUNCH), all, NULL)) != NULL)))
    kernel = Py_NewRef(PyTuple_GET_ITEM(entry, KERNEL));
  Py_XDECREF(done);
  Py_XDECREF(all);
  Py_XDECREF(memory);
  Py_XDECREF(stream);
  for (int i = 0; i < 3; i++) Py_XDECREF(xyz[i]);
  return kernel;
}

static PyObject *hand_on(Front *self, PyObject *entry, PyObject *const *args) {
  PyObject *result = NULL, *given = PyTuple_New(self->positional), *named = PyDict_New();
  Py_ssize_t keywords = PyTuple_GET_SIZE(self->o[KEYWORDS]);
  int fine = given != NULL && named != NULL && note(self, PyTuple_GET_ITEM(entry, CONFIG));
  for (int i = 0; fine && i < self->positional; i++) PyTuple_SET_ITEM(given, i, Py_NewRef(args[1 + i]));
  for (Py_ssize_t i = 0; fine && i < keywords; i++)
    fine = PyDict_SetItem(named, PyTuple_GET_ITEM(self->o[KEYWORDS], i), args[1 + self->positional + i]) == 0;
  if (fine) result = PyObject_CallMethodObjArgs(PyTuple_GET_ITEM(entry, 0), s_launch, args[0], given, named, NULL);
  Py_XDECREF(given);
  Py_XDECREF(named);
  return result;
}

static PyObject *call(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *keywords) {
  Front *self = (Front *)object;
  PyObject *entry = NULL, *result = NULL, *ordered[MAX_PARAMETERS + 1];
  PyObject *const *own = NULL;
  Call c;
  if (self->o[FALLBACK] == NULL) {
    PyErr_SetString(PyExc_RuntimeError, "a prepared launch was called while it was being deleted");
    return NULL;
  }
  c.n = c.pointer_count = 0;
  c.together = 0;
  c.device = NULL;
  c.device_number = 0;
  for (int i = 0; i < self->count; i++) c.passed[i] = NULL;
  if (PyVectorcall_NARGS(nargsf) == 1 + self->positional) own = in_order(self, args, keywords, ordered);
  if (own != NULL && usual(self)) entry = look_up(self, &c, own);
  int go = entry != NULL && chosen(self, PyTuple_GET_ITEM(entry, CONFIG), PyTuple_GET_ITEM(entry, CHOICE));
  if (go && !self->staged)
    go = PyTuple_GET_ITEM(entry, LAUNCH) != Py_None &&
         compiled(self, &c, PyTuple_GET_ITEM(entry, SLOT), PyTuple_GET_ITEM(entry, KERNEL));
  if (go) {
    result = self->staged ? hand_on(self, entry, own) : launch(self, &c, entry, own);
  } else {
    PyErr_Clear();
    result = PyObject_Vectorcall(self->o[FALLBACK], args, nargsf, keywords);
  }
  Py_XDECREF(entry);
  forget(&c, self->count);
  return result;
}

static int traverse(PyObject *object, visitproc visit, void *arg) {
  Front *self = (Front *)object;
  for (int i = 0; i < OBJECTS; i++) Py_VISIT(self->o[i]);
  Py_VISIT(self->tuner);
  Py_VISIT(self->jit);
  return 0;
}

static int clear(PyObject *object) {
  Front *self = (Front *)object;
  for (int i = 0; i < OBJECTS; i++) Py_CLEAR(self->o[i]);
  Py_CLEAR(self->tuner);
  Py_CLEAR(self->jit);
  return 0;
}

static void dealloc(PyObject *object) {
  PyObject_GC_UnTrack(object);
  clear(object);
  PyObject_GC_Del(object);
}

static PyTypeObject FrontType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kerntune.dispatch.front.Front",
    .tp_basicsize = sizeof(Front),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Front, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_traverse = traverse,
    .tp_clear = clear,
    .tp_dealloc = dealloc,
};

/* front(objects, parameters, positional, single, staged, layouts, binary, one_device, order) */
static PyObject *make(PyObject *module, PyObject *args) {
  PyObject *objects, *parameters;
  int positional, single, staged, layouts, binary, one_device, order;
  if (!PyArg_ParseTuple(args, "O!O!iiiiiii", &PyTuple_Type, &objects, &PyTuple_Type, &parameters, &positional, &single,
                        &staged, &layouts, &binary, &one_device, &order))
    return NULL;
  Py_ssize_t count = PyTuple_GET_SIZE(parameters);
  if (PyTuple_GET_SIZE(objects) != OBJECTS || count > MAX_PARAMETERS) {
    PyErr_SetString(PyExc_ValueError, "another number of objects, or too many parameters");
    return NULL;
  }
  int lists[] = {ENTERING, LEAVING, RUNNING};
  int dicts[] = {TABLE, PROFILER, RUNTIME, RUNTIME_THEN, COMPILATION, COMPILATION_THEN};
  int fine = PyTuple_CheckExact(PyTuple_GET_ITEM(objects, KEYWORDS)) &&
             PyTuple_CheckExact(PyTuple_GET_ITEM(objects, NAMES)) &&
             PyTuple_GET_SIZE(PyTuple_GET_ITEM(objects, NAMES)) == count &&
             PyType_Check(PyTuple_GET_ITEM(objects, JITFUNCTION));
  for (int i = 0; i < 3; i++) fine = fine && PyList_CheckExact(PyTuple_GET_ITEM(objects, lists[i]));
  for (int i = 0; i < 6; i++) fine = fine && PyDict_CheckExact(PyTuple_GET_ITEM(objects, dicts[i]));
  if (!fine) {
    PyErr_SetString(PyExc_TypeError, "an object of another type than the launch looks at");
    return NULL;
  }
  Front *self = PyObject_GC_New(Front, &FrontType);
  if (self == NULL) return NULL;
  for (int i = 0; i < OBJECTS; i++) self->o[i] = Py_NewRef(PyTuple_GET_ITEM(objects, i));
  self->tuner = PyObject_GenericGetDict(self->o[TUNER], NULL);
  self->jit = PyObject_GenericGetDict(self->o[JIT], NULL);
  self->vectorcall = call;
  self->count = (int)count;
  self->positional = positional, self->single = single, self->staged = staged, self->layouts = layouts;
  self->binary = binary, self->one_device = one_device, self->order = order;
  for (Py_ssize_t i = 0; i < count; i++) {
    Parameter *p = &self->parameters[i];
    fine = fine && PyArg_ParseTuple(PyTuple_GET_ITEM(parameters, i), "iiii", &p->kind, &p->source, &p->exact,
                                    &p->constexpr_);
  }
  if (!fine || self->tuner == NULL || self->jit == NULL) {
    Py_DECREF(self);
    return NULL;
  }
  PyObject_GC_Track(self);
  return (PyObject *)self;
}

/* use_driver(address): where cuLaunchKernel is, 0 for none. */
static PyObject *use_driver(PyObject *module, PyObject *address) {
  void *at = PyLong_AsVoidPtr(address);
  if (PyErr_Occurred()) return NULL;
  memcpy(&launch_kernel, &at, sizeof at);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {{"front", make, METH_VARARGS, "A prepared launch."},
                                {"use_driver", use_driver, METH_O, "Where cuLaunchKernel is."},
                                {NULL, NULL, 0, NULL}};
static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "kerntune_front", NULL, -1, methods};

PyMODINIT_FUNC PyInit_kerntune_front(void) {
  struct { PyObject **to; const char *text; } names[] = {
      {&s_run, "run"}, {&s_enabled, "_is_profiler_enabled"}, {&s_data_ptr, "data_ptr"}, {&s_properties[IS_CUDA], "is_cuda"},
      {&s_get_device, "get_device"}, {&s_properties[DTYPE], "dtype"}, {&s_shape, "shape"}, {&s_stride, "stride"}, {&s_base, "base"},
      {&s_block_shape, "block_shape"}, {&s_configs, "configs"}, {&s_cache, "cache"}, {&s_fn, "fn"},
      {&s_device_caches, "device_caches"}, {&s_best_config, "best_config"}, {&s_get, "get"}, {&s_launch, "launch"}};
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    if ((*names[i].to = PyUnicode_InternFromString(names[i].text)) == NULL) return NULL;
  zero = PyLong_FromLong(0);
  two = PyLong_FromLong(2);
  if (zero == NULL || two == NULL || PyType_Ready(&FrontType) < 0) return NULL;
  return PyModule_Create(&definition);
}
