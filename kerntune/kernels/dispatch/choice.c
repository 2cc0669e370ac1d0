/* The look-up of a choice, 3 of 4: the implementation that a call's arguments were decided to go to.

   The key has 64-bit words for tensors and small numbers, read without making objects of their shapes, and after them the
   objects that it can't have as words. choice_finder.py says what the key distinguishes. */
#define MAX_WORDS 1024
#define RECENT 8
#define SHORT 32
#define CUDA 1 /* of c10::DeviceType */

/* c10::GradMode::is_enabled and at::autocast::is_autocast_enabled, whose Python functions take longer than the rest of a
   look-up; NULL where they aren't known. */
static _Bool (*grad_enabled)(void) = NULL;
static _Bool (*autocast_enabled)(int8_t device_type) = NULL;

/* A key without objects that was found lately, and what it led to. */
typedef struct {
  int n;
  int64_t words[SHORT];
  PyObject *found;
} Recent;

enum words { WORD_TENSOR = 1, WORD_INT, WORD_SINGLE, WORD_OBJECT };

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *table, *part, *grad, *autocast;
  int count;
  unsigned char keyed[MAX_PARAMETERS];
  Recent recent[RECENT];
} Finder;

typedef struct {
  int64_t words[MAX_WORDS];
  PyObject *objects[2 * MAX_PARAMETERS];
  int n, m;
} Wanted;

static int word(Wanted *w, int64_t value) {
  if (w->n == MAX_WORDS) return 0;
  w->words[w->n++] = value;
  return 1;
}

static int object(Wanted *w, PyObject *owned) {
  if (owned == NULL) return 0;
  w->objects[w->m++] = owned;
  return 1;
}

/* True or False as 1 or 0, of a function without arguments; -1 with an error. */
static int asked(PyObject *function) {
  PyObject *answer = PyObject_CallNoArgs(function);
  int found = answer == NULL ? -1 : answer == Py_True;
  Py_XDECREF(answer);
  return found;
}

static int wanted_tensor(Wanted *w, PyObject *value, TensorInfo *info, int keyed, int grad) {
  int needs = 0;
  if (grad) {
    PyObject *answer = property_of(value, REQUIRES_GRAD);
    if (answer == NULL) return 0;
    needs = answer == Py_True;
    Py_DECREF(answer);
  }
  PyObject **place = dtype_place(info), *dtype = place != NULL ? *place : NULL;
  int64_t layout = keyed ? info->ndim + 1 : 0;
  if (!word(w, WORD_TENSOR | needs << 4 | layout << 8 | (int64_t)info->device.type << 24 | (int64_t)info->device.id << 40) ||
      !word(w, (int64_t)(intptr_t)dtype))
    return 0;
  if (dtype == NULL && !object(w, property_of(value, DTYPE))) return 0;
  if (!keyed || info->ndim <= 0) return 1;
  if (info->shape == NULL || info->strides == NULL || w->n + 2 * (int64_t)info->ndim > MAX_WORDS) return 0;
  memcpy(w->words + w->n, info->shape, info->ndim * sizeof(int64_t));
  w->n += info->ndim;
  memcpy(w->words + w->n, info->strides, info->ndim * sizeof(int64_t));
  w->n += info->ndim;
  return 1;
}

/* What one argument adds. Singletons count by their address. What is neither they, nor an int of 64 bits, nor a tensor
   that is read through the exchange, counts by what Python makes of it. */
static int wanted(Finder *self, Wanted *w, PyObject *value, int keyed, int grad) {
  TensorInfo info;
  if (value == Py_None || value == Py_True || value == Py_False) {
    PyObject *one = keyed ? value : (PyObject *)Py_TYPE(value);
    return word(w, WORD_SINGLE) && word(w, (int64_t)(intptr_t)one);
  }
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    int64_t number = keyed ? PyLong_AsLongLongAndOverflow(value, &overflow) : 0;
    if (!overflow) return word(w, WORD_INT) && word(w, number);
  }
  if (described(value, &info)) return wanted_tensor(w, value, &info, keyed, grad);
  PyObject *given[] = {value, keyed ? Py_True : Py_False};
  return word(w, WORD_OBJECT) && object(w, PyObject_Vectorcall(self->part, given, 2, NULL));
}

/* Whether a call has a key: its parts are in w, whose objects are the caller's to give back. */
static int read_call(Finder *self, Wanted *w, PyObject *const *args) {
  w->n = w->m = 0;
  int grad = grad_enabled != NULL ? grad_enabled() : asked(self->grad);
  int autocast = grad < 0 ? -1 : autocast_enabled != NULL ? autocast_enabled(CUDA) : asked(self->autocast);
  int fine = autocast >= 0 && word(w, grad | autocast << 1);
  for (int i = 0; fine && i < self->count; i++) fine = wanted(self, w, args[i], self->keyed[i], grad);
  return fine;
}

/* The key in the table, a new reference; NULL with an error. It takes the objects. */
static PyObject *wanted_key(Wanted *w) {
  PyObject *words = PyBytes_FromStringAndSize((char *)w->words, w->n * sizeof(int64_t));
  if (words == NULL || w->m == 0) return words;
  PyObject *key = PyTuple_New(1 + w->m);
  if (key == NULL) {
    Py_DECREF(words);
    return NULL;
  }
  PyTuple_SET_ITEM(key, 0, words);
  for (int i = 0; i < w->m; i++) PyTuple_SET_ITEM(key, 1 + i, w->objects[i]);
  w->m = 0;
  return key;
}

static void give_back(Wanted *w) {
  for (int i = 0; i < w->m; i++) Py_DECREF(w->objects[i]);
}

/* The place of a key among the recent ones; NULL for one with objects, or a long one. */
static Recent *recent_place(Finder *self, Wanted *w) {
  if (w->m > 0 || w->n > SHORT) return NULL;
  uint64_t sum = 0;
  for (int i = 0; i < w->n; i++) sum = (sum ^ (uint64_t)w->words[i]) * 0x9E3779B97F4A7C15u;
  return &self->recent[sum >> 61];
}

static void forget_recent(Finder *self) {
  for (int i = 0; i < RECENT; i++) Py_CLEAR(self->recent[i].found);
}

/* What was kept for a key, a new reference; NULL, perhaps with an error. */
static PyObject *kept_for(Finder *self, Wanted *w) {
  Recent *place = recent_place(self, w);
  if (place != NULL && place->found != NULL && place->n == w->n && memcmp(place->words, w->words, w->n * sizeof(int64_t)) == 0)
    return Py_NewRef(place->found);
  PyObject *key = wanted_key(w), *found = key == NULL ? NULL : PyDict_GetItemWithError(self->table, key);
  Py_XINCREF(found);
  Py_XDECREF(key);
  if (place != NULL && found != NULL) {
    place->n = w->n;
    memcpy(place->words, w->words, w->n * sizeof(int64_t));
    Py_XSETREF(place->found, Py_NewRef(found));
  }
  return found;
}

/* finder(*values): what was kept for such values, or None. */
static PyObject *find(PyObject *object, PyObject *const *args, size_t nargsf, PyObject *keywords) {
  Finder *self = (Finder *)object;
  PyObject *found = NULL;
  Wanted w;
  w.m = 0;
  if (self->table != NULL && PyVectorcall_NARGS(nargsf) == self->count && keywords == NULL && read_call(self, &w, args))
    found = kept_for(self, &w);
  give_back(&w);
  if (found != NULL) return found;
  PyErr_Clear();
  Py_RETURN_NONE;
}

/* finder.keep(found, *values): have such values lead to it from now on; nothing where they have no key. */
static PyObject *keep(PyObject *object, PyObject *const *args, Py_ssize_t n) {
  Finder *self = (Finder *)object;
  Wanted w;
  w.m = 0;
  PyObject *key = n == 1 + self->count && read_call(self, &w, args + 1) ? wanted_key(&w) : NULL;
  if (key == NULL || PyDict_SetItem(self->table, key, args[0]) < 0) PyErr_Clear();
  Py_XDECREF(key);
  give_back(&w);
  forget_recent(self);
  Py_RETURN_NONE;
}

static PyObject *forget_all(PyObject *object, PyObject *unused) {
  forget_recent((Finder *)object);
  PyDict_Clear(((Finder *)object)->table);
  Py_RETURN_NONE;
}

static int traverse_finder(PyObject *object, visitproc visit, void *arg) {
  Finder *self = (Finder *)object;
  Py_VISIT(self->table);
  Py_VISIT(self->part);
  Py_VISIT(self->grad);
  Py_VISIT(self->autocast);
  for (int i = 0; i < RECENT; i++) Py_VISIT(self->recent[i].found);
  return 0;
}

static int clear_finder(PyObject *object) {
  Finder *self = (Finder *)object;
  Py_CLEAR(self->table);
  Py_CLEAR(self->part);
  Py_CLEAR(self->grad);
  Py_CLEAR(self->autocast);
  forget_recent(self);
  return 0;
}

static void dealloc_finder(PyObject *object) {
  PyObject_GC_UnTrack(object);
  clear_finder(object);
  PyObject_GC_Del(object);
}

static PyMethodDef finder_methods[] = {
    {"keep", (PyCFunction)(void (*)(void))keep, METH_FASTCALL, "Have values lead to something."},
    {"clear", forget_all, METH_NOARGS, "Keep nothing."},
    {NULL, NULL, 0, NULL}};

static PyTypeObject FinderType = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "kerntune.kernels.dispatch.front.Finder",
    .tp_basicsize = sizeof(Finder),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(Finder, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_methods = finder_methods,
    .tp_traverse = traverse_finder,
    .tp_clear = clear_finder,
    .tp_dealloc = dealloc_finder,
};

/* finder(part, grad, autocast, keyed): keyed has a byte for each parameter, 1 where it is in the key. */
static PyObject *make_finder(PyObject *module, PyObject *args) {
  PyObject *part, *grad, *autocast;
  const char *keyed;
  Py_ssize_t count;
  if (!PyArg_ParseTuple(args, "OOOy#", &part, &grad, &autocast, &keyed, &count)) return NULL;
  if (count > MAX_PARAMETERS) {
    PyErr_SetString(PyExc_ValueError, "too many parameters");
    return NULL;
  }
  Finder *self = PyObject_GC_New(Finder, &FinderType);
  if (self == NULL) return NULL;
  self->vectorcall = find;
  self->table = PyDict_New();
  self->part = Py_NewRef(part), self->grad = Py_NewRef(grad), self->autocast = Py_NewRef(autocast);
  self->count = (int)count;
  memcpy(self->keyed, keyed, count);
  memset(self->recent, 0, sizeof(self->recent));
  PyObject_GC_Track(self);
  if (self->table == NULL) Py_CLEAR(self);
  return (PyObject *)self;
}

/* use_settings(grad, autocast): where the two functions are, 0 for the Python ones. */
static PyObject *use_settings(PyObject *module, PyObject *args) {
  unsigned long long grad, autocast;
  if (!PyArg_ParseTuple(args, "KK", &grad, &autocast)) return NULL;
  void *places[] = {(void *)(size_t)grad, (void *)(size_t)autocast};
  memcpy(&grad_enabled, &places[0], sizeof places[0]);
  memcpy(&autocast_enabled, &places[1], sizeof places[1]);
  Py_RETURN_NONE;
}

